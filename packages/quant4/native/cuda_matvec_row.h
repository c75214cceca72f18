// One row of x in bf16 against codes of 4 bits, on NVIDIA's matrix units for bytes: what a step of decoding waits for.
// Codes are the left operand, cut out of their words with one instruction for four of them: those in upper halves of
// bytes as 16 times what they are. x is the right one, as whole numbers of 23 bits in units of each 64 columns, whose
// three signed bytes are columns of the operand. So sums of products are exact, and scaled in f32.
//
// A simdgroup takes spans of 256 columns of tiles of 16 rows of W. Codes, scales and biases of its next spans are on the
// way to threadgroup memory, where they take no registers: the first ones before the wait for other kernels.
#pragma once
#include "cuda_matvec_operands.h"

namespace mlxts {

constant constexpr uint kSpan = 256, kSpanUnits = 4;  // columns; units of 64
constant constexpr uint kRowThreads = QUANTIZED_MATVEC_ROW_THREADS, kRowSimdgroups = kRowThreads / kSimd;
constant constexpr uint kSpansAhead = QUANTIZED_MATVEC_SPANS_AHEAD;
// The most of x that a simdgroup brings.
constant constexpr uint kOwnSpans = QUANTIZED_MATVEC_MOST_SPANS / kRowSimdgroups;
constant constexpr uint kPiece = 16, kPieces = kSpan / 2 / kPiece;                 // bytes; of codes of a row of a span
constant constexpr uint kRowsAtOnce = kSimd / kPieces;
constant constexpr uint kLimbs = 3;
// Whole numbers beside this one are the last bits of an f32, if they are below 2^22.
constant constexpr float kWhole = 12582912.0f;
constant constexpr uint kWholeBits = 0x4b400000;

// A span of a tile in threadgroup memory: codes of 16 rows, then scales, then biases of their units.
template <typename S>
struct SpanInMemory {
  static constant constexpr uint kCodes = kTileRows * kPieces * kPiece;
  static constant constexpr uint kNumbers = kTileRows * kSpanUnits;  // scales
  static constant constexpr uint kBytes = kCodes + 2 * kNumbers * uint(sizeof(S));

  // Odd rows have other pieces in the same banks.
  static METAL_FUNC uint place(uint row, uint piece) { return (row * kPieces + (piece ^ row % 2 * 2)) * kPiece; }
};

// A row of W.
template <typename S>
struct RowOfW {
  AffineMatrix<S, 4> w;
  uint row;
};

// Tiles of a matrix: 16 rows of it.
template <typename S>
struct TilesOfOne {
  AffineMatrix<S, 4> w;

  METAL_FUNC uint count() const thread { return (w.rows + kTileRows - 1) / kTileRows; }
  // Rows that do not exist are the last one again.
  METAL_FUNC RowOfW<S> row(uint tile, uint r) const thread {
    return {w, metal::min(tile * kTileRows + r, w.rows - 1)};
  }
};

// Tiles of two matrices: eight rows of the first, then the same of the second.
template <typename S>
struct TilesOfTwo {
  static constant constexpr uint kEach = kTileRows / 2;
  AffineMatrix<S, 4> first, second;

  METAL_FUNC uint count() const thread { return (first.rows + kEach - 1) / kEach; }
  METAL_FUNC RowOfW<S> row(uint tile, uint r) const thread {
    return {r < kEach ? first : second, metal::min(tile * kEach + r % kEach, first.rows - 1)};
  }
};

// A span of a tile begins its way to threadgroup memory.
template <typename S, typename Tiles>
METAL_FUNC void bring_span(threadgroup uchar* to, thread const Tiles& tiles, uint tile, uint span, uint lane) {
  typedef SpanInMemory<S> Place;
  const uint piece = lane % kPieces;
  MLXTS_UNROLL for (uint i = 0; i < kTileRows; i += kRowsAtOnce) {
    const uint r = i + lane / kPieces;
    const RowOfW<S> from = tiles.row(tile, r);
    device const uchar* codes = (device const uchar*)from.w.words + ulong(from.row) * (from.w.cols / 2);
    machine::copy_once(to + Place::place(r, piece), codes + (span * kPieces + piece) * kPiece);
  }
  const uint r = lane % kTileRows;
  const RowOfW<S> from = tiles.row(tile, r);
  device const S* numbers = lane < kTileRows ? from.w.scales : from.w.biases;
  threadgroup uchar* own = to + Place::kCodes + lane * kSpanUnits * uint(sizeof(S));
  // Units of a row, and of the spans before.
  const uint units = from.row * (from.w.cols / 64) + span * kSpanUnits;
  if (from.w.groupSize == 64)
    machine::copy_start<kSpanUnits * sizeof(S)>(own, numbers + units);
  else
    machine::copy_start<kSpanUnits / 2 * sizeof(S)>(own, numbers + units / 2);
}

// A row of x in threadgroup memory. Lane (g, j) has columns 32 j' … of a span in each of two blocks, j' = 4 (j / 2) + 2
// block + j % 2, so those of one unit. Right operands are [span][block][half of bytes][limb][j].
struct RowOfX {
  static constant constexpr uint kBlock = 2 * kLimbs * 4, kSpanOperands = 2 * kBlock;
  threadgroup uint4* operands;
  threadgroup uint4* zeros;     // the operands of lanes that have none
  threadgroup float4* factors;  // [span][j]: of each block the unit of the limbs, and the sum of x
  threadgroup float* free;      // what follows

  METAL_FUNC RowOfX(threadgroup uchar* memory, uint spans) thread {
    operands = (threadgroup uint4*)memory;
    zeros = operands + spans * kSpanOperands;
    factors = (threadgroup float4*)(zeros + 8);
    free = (threadgroup float*)(factors + spans * 4);
  }
};

METAL_FUNC float power_of_two(int n) {
  return as_type<float>(n < -126 ? 1u << (149 + n) : uint(127 + n) << 23);
}

// Eight columns of a span of x, as a lane brings them.
METAL_FUNC void keep_columns(thread const RowOfX& row, uint4 columns, uint span, uint lane) {
  float x[8], sum = 0.0f;
  uint most = 0;
  MLXTS_UNROLL for (uint i = 0; i < 4; ++i) {
    x[2 * i] = as_type<float>(columns[i] << 16);
    x[2 * i + 1] = as_type<float>(columns[i] & 0xffff0000u);
    most = metal::max(most, metal::max(columns[i] << 16 & 0x7fffffffu, columns[i] & 0x7fff0000u));
    sum += x[2 * i] + x[2 * i + 1];
  }
  MLXTS_UNROLL for (uint by = 1; by < 8; by *= 2) {
    most = metal::max(most, metal::simd_shuffle_xor(most, ushort(by)));
    sum += metal::simd_shuffle_xor(sum, ushort(by));
  }
  // The largest x is below 2^22 units; bf16 has no digits below 2^-133. What is not finite is found in the sum.
  const int exponent = int(metal::min(metal::max(most >> 23, 15u), 254u)) - 127;
  const int power = 21 - exponent, first = metal::min(power, 127);
  const float high = power_of_two(first), low = power_of_two(power - first);
  // A byte and 128 less of the next one: signed bytes.
  uint digits[8];
  MLXTS_UNROLL for (uint i = 0; i < 8; ++i) digits[i] =
      (as_type<uint>(metal::fma(x[i] * high, low, kWhole)) - kWholeBits + 0x00808080u) ^ 0x00808080u;
  const uint part = lane / 4, block = part / 2 % 2, j = part / 4 * 2 + part % 2;
  threadgroup uint* to = (threadgroup uint*)(row.operands + span * RowOfX::kSpanOperands + block * RowOfX::kBlock + j);
  // Lower halves of bytes have the codes of even columns, upper halves those of odd ones.
  MLXTS_UNROLL for (uint odd = 0; odd < 2; ++odd) {
    const uint a = machine::bytes_of(digits[odd], digits[odd + 2], 0x5140);
    const uint b = machine::bytes_of(digits[odd + 4], digits[odd + 6], 0x5140);
    const uint c = machine::bytes_of(digits[odd], digits[odd + 2], 0x0062);
    const uint d = machine::bytes_of(digits[odd + 4], digits[odd + 6], 0x0062);
    const uint limbs[kLimbs] = {machine::bytes_of(a, b, 0x5410), machine::bytes_of(a, b, 0x7632),
                                machine::bytes_of(c, d, 0x5410)};
    MLXTS_UNROLL for (uint limb = 0; limb < kLimbs; ++limb) to[(odd * kLimbs + limb) * 16 + lane % 4] = limbs[limb];
  }
  // Lanes of even j add the upper two limbs, and those of odd j the last one. Products are 16 times what they are.
  if (lane % 8 < 2) {
    const uint unit = lane / 8, last = lane % 8;
    threadgroup float* factors = (threadgroup float*)(row.factors + span * 4 + unit / 2 * 2 + last) + unit % 2 * 2;
    factors[0] = power_of_two((last ? 0 : 8) - power - 4);
    factors[1] = last ? 0.0f : sum;
  }
}

// x of the simdgroup's spans; zeros until it is loaded.
struct OwnColumns {
  uint4 at[kOwnSpans];

  METAL_FUNC OwnColumns() thread {
    MLXTS_UNROLL for (uint i = 0; i < kOwnSpans; ++i) at[i] = uint4(0);
  }
  // All of it on its way at once.
  METAL_FUNC void load(device const bfloat* x, uint spans, uint lane, uint simdgroup) thread {
    MLXTS_UNROLL for (uint i = 0; i < kOwnSpans; ++i) {
      const uint span = simdgroup + i * kRowSimdgroups;
      if (span < spans) at[i] = *(device const uint4*)(x + span * kSpan + lane * 8);
    }
  }
  // The instructions for a span stand once, so that few are fetched.
  METAL_FUNC void keep(thread const RowOfX& row, uint spans, uint lane, uint simdgroup) thread {
#pragma unroll 1
    for (uint span = simdgroup; span < spans; span += kRowSimdgroups) {
      keep_columns(row, at[0], span, lane);
      MLXTS_UNROLL for (uint i = 1; i < kOwnSpans; ++i) at[i - 1] = at[i];
    }
  }
};

// What a lane has of a span of a tile: of two rows its columns of each block, scale and bias of their unit.
template <typename S>
struct SpanOfLane {
  uint4 codes[2][2];  // [block][row]
  S scales[2][2], biases[2][2];

  METAL_FUNC SpanOfLane(threadgroup const uchar* span, uint groupSize, uint lane) thread {
    typedef SpanInMemory<S> Place;
    const uint g = lane / 4, j = lane % 4;
    threadgroup const S* numbers = (threadgroup const S*)(span + Place::kCodes);
    MLXTS_UNROLL for (uint b = 0; b < 2; ++b) MLXTS_UNROLL for (uint h = 0; h < 2; ++h) {
      codes[b][h] = *(threadgroup const uint4*)(span + Place::place(8 * h + g, j / 2 * 4 + b * 2 + j % 2));
      const uint unit = j / 2 * 2 + b, at = (8 * h + g) * kSpanUnits + (groupSize == 64 ? unit : unit / 2);
      scales[b][h] = numbers[at];
      biases[b][h] = numbers[Place::kNumbers + at];
    }
  }
};

// The right operands of a lane, which is column g of them: limb g % 4 for the lanes of unit g / 4, the upper one first.
struct RightOfLane {
  threadgroup const uint4* operands;
  uint spanStep, blockStep, halfStep;

  METAL_FUNC RightOfLane(thread const RowOfX& row, uint lane) thread {
    const uint g = lane / 4, j = lane % 4, column = g % 4;
    const bool mine = g / 4 == j / 2 && column != 2;
    const uint limb = column == 0 ? 2 : column == 1 ? 1 : 0;
    operands = mine ? row.operands + limb * 4 + j : row.zeros + (g < 4 ? 2 : 0);  // not in the banks of others
    spanStep = mine ? RowOfX::kSpanOperands : 0;
    blockStep = mine ? RowOfX::kBlock : 0;
    halfStep = mine ? RowOfX::kBlock / 2 : 0;
  }
};

// Sums of a span for a lane's two rows, over its own columns and limbs.
template <typename S>
METAL_FUNC void multiply_span(thread float (&sums)[2], thread const SpanOfLane<S>& own, thread const RightOfLane& right,
                              float4 factors, uint span) {
  constexpr uint kLow = 0x0f0f0f0f, kHigh = 0xf0f0f0f0;
  threadgroup const uint4* operands = right.operands + span * right.spanStep;
  int products[2][4] = {};
  MLXTS_UNROLL for (uint b = 0; b < 2; ++b) {
    const uint4 low = own.codes[b][0], high = own.codes[b][1];
    const uint4 even = operands[b * right.blockStep], odd = operands[b * right.blockStep + right.halfStep];
    machine::mma_bytes_k32(products[b], low.x & kLow, high.x & kLow, low.y & kLow, high.y & kLow, even.x, even.y);
    machine::mma_bytes_k32(products[b], low.z & kLow, high.z & kLow, low.w & kLow, high.w & kLow, even.z, even.w);
    MLXTS_UNROLL for (uint n = 0; n < 4; ++n) products[b][n] = products[b][n] * 16 + int(kWholeBits);
    machine::mma_bytes_k32(products[b], low.x & kHigh, high.x & kHigh, low.y & kHigh, high.y & kHigh, odd.x, odd.y);
    machine::mma_bytes_k32(products[b], low.z & kHigh, high.z & kHigh, low.w & kHigh, high.w & kHigh, odd.z, odd.w);
  }
  MLXTS_UNROLL for (uint b = 0; b < 2; ++b) MLXTS_UNROLL for (uint h = 0; h < 2; ++h) {
    const float upper = as_type<float>(products[b][2 * h]) - kWhole;
    const float lower = as_type<float>(products[b][2 * h + 1]) - kWhole;
    const float unit = b == 0 ? factors.x : factors.z, sum = b == 0 ? factors.y : factors.w;
    sums[h] = metal::fma(float(own.scales[b][h]), metal::fma(upper, 256.0f, lower) * unit,
                         metal::fma(float(own.biases[b][h]), sum, sums[h]));
  }
}

// Where a simdgroup is: at a span of a tile. Spans of all tiles of the threadgroup follow one another, and simdgroups
// take turns.
struct SpanCursor {
  uint tile, span, before;  // spans of the tiles before

  METAL_FUNC SpanCursor(uint first, uint simdgroup, uint spans, uint stride) thread {
    tile = first;
    span = simdgroup;
    before = 0;
    settle(spans, stride);
  }
  METAL_FUNC void next(uint spans, uint stride) thread {
    span += kRowSimdgroups;
    settle(spans, stride);
  }

 private:
  METAL_FUNC void settle(uint spans, uint stride) thread {
    while (span >= spans) {
      span -= spans;
      before += spans;
      tile += stride;
    }
  }
};

// Sums of spans that a threadgroup's simdgroups leave to all its threads: [tile][span][row].
struct SumsOfSpans {
  threadgroup const float* sums;
  uint spans, first, stride, count;

  // Whether a thread has one more output, of so many, and of which tile and row.
  METAL_FUNC bool has(uint output) const thread { return tile(output) < count; }
  METAL_FUNC uint tile(uint output) const thread { return first + output / kTileRows * stride; }
  METAL_FUNC uint row(uint output) const thread { return output % kTileRows; }
  // Of a row of the output's tile.
  METAL_FUNC float product(uint output, uint r) const thread {
    threadgroup const float* from = sums + output / kTileRows * spans * kTileRows + r;
    float sum = 0.0f;
#pragma unroll 8
    for (uint span = 0; span < spans; ++span) sum += from[span * kTileRows];
    return sum;
  }
};

// The sums of a threadgroup, whose tiles are the first one and every `stride`-th after it. The instructions for one span
// run once for nothing, with zeros for x, while other kernels still write x: so they need not be fetched when it is there.
template <typename S, typename Tiles>
METAL_FUNC SumsOfSpans sum_spans(device const bfloat* x, thread const Tiles& tiles, uint cols, uint groupSize,
                                 uint first, uint stride, uint lane, uint simdgroup) {
  const uint count = tiles.count(), spans = cols / kSpan;
  constexpr uint kRing = kSpansAhead * SpanInMemory<S>::kBytes;  // of a simdgroup
  threadgroup uchar* rings = (threadgroup uchar*)machine::threadgroup_memory();
  threadgroup uchar* ring = rings + simdgroup * kRing;
  RowOfX row(rings + kRowSimdgroups * kRing, spans);
  const SpanCursor begin(first, simdgroup, spans, stride);
  SpanCursor ahead = begin;
#pragma unroll 1
  for (uint i = 0; i < kSpansAhead; ++i) {
    if (ahead.tile < count) {
      bring_span<S>(ring + i * SpanInMemory<S>::kBytes, tiles, ahead.tile, ahead.span, lane);
      ahead.next(spans, stride);
    }
    machine::copies_end();
  }
  if (simdgroup == 0 && lane < 8) row.zeros[lane] = uint4(0);

  const uint g = lane / 4, j = lane % 4;
  const RightOfLane right(row, lane);
  threadgroup const float4* factors = row.factors + j;
#pragma unroll 1
  for (uint pass = 0; pass < 2; ++pass) {
    const bool rehearses = pass == 0;
    OwnColumns columns;
    if (!rehearses) {
      threadgroup_barrier(metal::mem_flags::mem_threadgroup);
      // Until here others may still write x.
      machine::wait_for_kernels();
      columns.load(x, spans, lane, simdgroup);
    }
    columns.keep(row, rehearses ? metal::min(spans, kRowSimdgroups) : spans, lane, simdgroup);
    threadgroup_barrier(metal::mem_flags::mem_threadgroup);

    // The zeros of x stand for a span of W, too, unless they are too few.
    if (rehearses && spans * RowOfX::kSpanOperands * sizeof(uint4) < SpanInMemory<S>::kBytes) continue;

    uint turn = 0;
    SpanCursor now = begin;
#pragma unroll 1
    while (now.tile < count) {
      if (!rehearses) machine::copies_wait<kSpansAhead - 1>();
      simdgroup_barrier(metal::mem_flags::mem_threadgroup);
      threadgroup uchar* place = rehearses ? (threadgroup uchar*)row.operands : ring + turn * SpanInMemory<S>::kBytes;
      const SpanOfLane<S> own(place, groupSize, lane);
      // The lanes have it: another begins its way.
      simdgroup_barrier(metal::mem_flags::mem_threadgroup);
      if (!rehearses) {
        if (ahead.tile < count) {
          bring_span<S>(place, tiles, ahead.tile, ahead.span, lane);
          ahead.next(spans, stride);
        }
        machine::copies_end();
      }
      turn = turn + 1 == kSpansAhead ? 0 : turn + 1;
      float sums[2] = {0.0f, 0.0f};
      multiply_span(sums, own, right, factors[now.span * 4], now.span);
      // Lanes j = 0 have the sum of the first row in the end, lanes j = 1 that of the second.
      const float other = metal::simd_shuffle_xor(j % 2 == 0 ? sums[1] : sums[0], ushort(1));
      float both = (j % 2 == 0 ? sums[0] : sums[1]) + other;
      both += metal::simd_shuffle_xor(both, ushort(2));
      if (j < 2) row.free[(now.before + now.span) * kTileRows + 8 * j + g] = both;
      if (rehearses) break;
      now.next(spans, stride);
    }
  }
  // Once more, for the check of what a kernel does before it waits: that does not know the passes.
  machine::wait_for_kernels();
  threadgroup_barrier(metal::mem_flags::mem_threadgroup);
  return {row.free, spans, first, stride, count};
}

}  // namespace mlxts
