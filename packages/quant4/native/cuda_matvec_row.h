// One row of x in bf16 against codes of 4 bits, on NVIDIA's matrix units for bytes: what a step of decoding waits for.
// Codes are the left operand, cut out of their words with one instruction for four of them: those in upper halves of
// bytes as 16 times what they are. x is the right one, as whole numbers of 23 bits in units of each 64 columns, whose
// three signed bytes are columns of the operand. So sums of products are exact, and scaled in f32.
//
// A simdgroup keeps to its spans of 256 columns, and takes them of tiles of 16 rows of W: it prepares its part of x by
// itself. Codes, scales and biases of its next spans are on the way to threadgroup memory, where they take no
// registers: the first ones before the wait for other kernels.
#pragma once
#include "cuda_matvec_operands.h"

namespace mlxts {

constant constexpr uint kSpan = 256, kSpanUnits = 4;  // columns; units of 64
constant constexpr uint kSpansAhead = QUANTIZED_MATVEC_SPANS_AHEAD;
constant constexpr uint kMostSimdgroups = QUANTIZED_MATVEC_ROW_THREADS / kSimd;
// The most spans of a simdgroup.
constant constexpr uint kOwnSpans = (QUANTIZED_MATVEC_MOST_SPANS + kMostSimdgroups - 1) / kMostSimdgroups;
constant constexpr uint kPiece = 16, kPieces = kSpan / 2 / kPiece;  // bytes; of codes of a row of a span
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

// A tile: eight rows of a matrix, and eight of it or of another one. Rows after the last one are that one again.
template <typename S>
struct TileOfW {
  static constant constexpr uint kEach = kTileRows / 2;
  AffineMatrix<S, 4> matrices[2];
  uint first[2];

  METAL_FUNC uint row(uint side, uint r) const thread {
    return metal::min(first[side] + r, matrices[side].rows - 1);
  }
};

// Tiles of a matrix: 16 rows of it.
template <typename S>
struct TilesOfOne {
  AffineMatrix<S, 4> w;

  METAL_FUNC uint count() const thread { return (w.rows + kTileRows - 1) / kTileRows; }
  METAL_FUNC TileOfW<S> at(uint tile) const thread {
    return {{w, w}, {tile * kTileRows, tile * kTileRows + TileOfW<S>::kEach}};
  }
};

// Tiles of two matrices: eight rows of the first, then the same of the second.
template <typename S>
struct TilesOfTwo {
  static constant constexpr uint kEach = TileOfW<S>::kEach;
  AffineMatrix<S, 4> first, second;

  METAL_FUNC uint count() const thread { return (first.rows + kEach - 1) / kEach; }
  METAL_FUNC TileOfW<S> at(uint tile) const thread { return {{first, second}, {tile * kEach, tile * kEach}}; }
};

// A span of a tile begins its way to threadgroup memory.
template <typename S>
METAL_FUNC void bring_span(threadgroup uchar* to, thread const TileOfW<S>& tile, uint cols, uint groupSize, uint span,
                           uint lane) {
  typedef SpanInMemory<S> Place;
  const uint piece = lane % kPieces, r = lane / kPieces;
  threadgroup uchar* own = to + Place::place(r, piece);
  MLXTS_UNROLL for (uint side = 0; side < 2; ++side) {
    device const uchar* codes = (device const uchar*)tile.matrices[side].words + (span * kPieces + piece) * kPiece;
    MLXTS_UNROLL for (uint i = 0; i < TileOfW<S>::kEach; i += kRowsAtOnce) machine::copy_once(
        own + (side * TileOfW<S>::kEach + i) * kPieces * kPiece, codes + ulong(tile.row(side, i + r)) * (cols / 2));
  }
  const uint side = lane / TileOfW<S>::kEach % 2;
  const uint row = side == 0 ? tile.row(0, lane % TileOfW<S>::kEach) : tile.row(1, lane % TileOfW<S>::kEach);
  thread const AffineMatrix<S, 4>&first = tile.matrices[0], &second = tile.matrices[1];
  device const S* scales = side == 0 ? first.scales : second.scales;
  device const S* biases = side == 0 ? first.biases : second.biases;
  device const S* numbers = lane < kTileRows ? scales : biases;
  threadgroup uchar* place = to + Place::kCodes + lane * kSpanUnits * uint(sizeof(S));
  // Units of a row, and of the spans before.
  const uint units = row * (cols / 64) + span * kSpanUnits;
  if (groupSize == 64)
    machine::copy_start<kSpanUnits * sizeof(S)>(place, numbers + units);
  else
    machine::copy_start<kSpanUnits / 2 * sizeof(S)>(place, numbers + units / 2);
}

// A simdgroup's spans of x in threadgroup memory. Lane (g, j) has columns 32 j' … of a span in each of two blocks, j' =
// 4 (j / 2) + 2 block + j % 2, so those of one unit. Right operands are [span][block][half of bytes][limb][j].
struct PartOfX {
  static constant constexpr uint kBlock = 2 * kLimbs * 4, kSpanOperands = 2 * kBlock;
  static constant constexpr uint kSpanBytes = kSpanOperands * uint(sizeof(uint4)) + 4 * uint(sizeof(float4));
  threadgroup uint4* operands;
  threadgroup float4* factors;  // [span][j]: of each block the unit of the limbs, and the sum of x

  METAL_FUNC PartOfX(threadgroup uchar* memory, uint spans) thread {
    operands = (threadgroup uint4*)memory;
    factors = (threadgroup float4*)(operands + spans * kSpanOperands);
  }
};

METAL_FUNC float power_of_two(int n) {
  return as_type<float>(n < -126 ? 1u << (149 + n) : uint(127 + n) << 23);
}

// Eight columns of a span of x, as a lane brings them.
METAL_FUNC void keep_columns(thread const PartOfX& part, uint4 columns, uint span, uint lane) {
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
  const uint quad = lane / 4, block = quad / 2 % 2, j = quad / 4 * 2 + quad % 2;
  threadgroup uint* to =
      (threadgroup uint*)(part.operands + span * PartOfX::kSpanOperands + block * PartOfX::kBlock + j);
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
    threadgroup float* factors = (threadgroup float*)(part.factors + span * 4 + unit / 2 * 2 + last) + unit % 2 * 2;
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
  // All of it on its way at once: so many spans, each `stride` after the one before.
  METAL_FUNC void load(device const bfloat* x, uint count, uint stride, uint lane) thread {
    MLXTS_UNROLL for (uint i = 0; i < kOwnSpans; ++i)
      if (i < count) at[i] = *(device const uint4*)(x + i * stride * kSpan + lane * 8);
  }
  // The instructions for a span stand once, so that few are fetched.
  METAL_FUNC void keep(thread const PartOfX& part, uint count, uint lane) thread {
#pragma unroll 1
    for (uint span = 0; span < count; ++span) {
      keep_columns(part, at[0], span, lane);
      MLXTS_UNROLL for (uint i = 1; i < kOwnSpans; ++i) at[i - 1] = at[i];
    }
  }
};

// Where a lane finds what it has of a span, in bytes from the span's begin, and which numbers of a row are those of its
// columns.
template <typename S>
struct PlacesOfLane {
  uint codes[2], numbers;  // of its first row, codes of each block
  uint low, high;  // the number of each block: which one, or which bytes of a pair of bf16 become a float's upper half

  METAL_FUNC PlacesOfLane(uint groupSize, uint lane) thread {
    typedef SpanInMemory<S> Place;
    const uint g = lane / 4, j = lane % 4, upper = j / 2;
    MLXTS_UNROLL for (uint b = 0; b < 2; ++b) codes[b] = Place::place(g, upper * 4 + b * 2 + j % 2);
    const bool each = groupSize == 64;
    numbers = Place::kCodes + (g * kSpanUnits + (each ? 2 * upper : 0)) * uint(sizeof(S));
    constexpr uint kLow = 0x1044, kHigh = 0x3244;  // two bytes of the pair, and two of zero
    if (metal::is_same_v<S, bfloat>) {
      low = each || upper == 0 ? kLow : kHigh;
      high = each || upper != 0 ? kHigh : kLow;
    } else {
      low = each ? 0 : upper;
      high = each ? 1 : upper;
    }
    // Else they are computed again for each span.
    machine::held(codes);
    machine::held(numbers);
    machine::held(low);
    machine::held(high);
  }

  // The numbers of both blocks of a row.
  METAL_FUNC float2 of(threadgroup const uchar* row) const thread {
    if constexpr (metal::is_same_v<S, bfloat>) {
      const uint pair = *(threadgroup const uint*)row;
      return float2(as_type<float>(machine::bytes_of(pair, 0, low)), as_type<float>(machine::bytes_of(pair, 0, high)));
    } else {
      return float2(((threadgroup const S*)row)[low], ((threadgroup const S*)row)[high]);
    }
  }
};

// What a lane has of a span of a tile: of two rows its columns of each block, scale and bias of their unit.
template <typename S>
struct SpanOfLane {
  uint4 codes[2][2];            // [block][row]
  float2 scales[2], biases[2];  // [row], of each block

  METAL_FUNC SpanOfLane(threadgroup const uchar* span, thread const PlacesOfLane<S>& at) thread {
    typedef SpanInMemory<S> Place;
    constexpr uint kNext = kTileRows / 2;  // the second row comes so many after the first one
    MLXTS_UNROLL for (uint h = 0; h < 2; ++h) {
      MLXTS_UNROLL for (uint b = 0; b < 2; ++b) codes[b][h] =
          *(threadgroup const uint4*)(span + at.codes[b] + h * kNext * kPieces * kPiece);
      threadgroup const uchar* row = span + at.numbers + h * kNext * kSpanUnits * uint(sizeof(S));
      scales[h] = at.of(row);
      biases[h] = at.of(row + Place::kNumbers * uint(sizeof(S)));
    }
  }
};

// Where the right operands of a lane are, which is column g of them: limb g % 4 for the lanes of unit g / 4, the upper
// one first; other lanes have zeros, which lie in other banks.
struct RightPlaces {
  threadgroup const uint4* operands;
  threadgroup const float4* factors;
  uint spanStep;

  METAL_FUNC RightPlaces(thread const PartOfX& part, threadgroup const uint4* zeros, uint lane) thread {
    const uint g = lane / 4, j = lane % 4, column = g % 4;
    const bool mine = g / 4 == j / 2 && column != 2;
    const uint limb = column == 0 ? 2 : column == 1 ? 1 : 0;
    operands = mine ? part.operands + limb * 4 + j : zeros + (g < 4 ? 2 : 0);
    factors = part.factors + j;
    spanStep = mine ? PartOfX::kSpanOperands : 0;
    machine::held(spanStep);
  }
};

// A span of x, as a lane has it.
struct RightOfLane {
  uint4 even[2], odd[2];  // [block]
  float4 factors;

  METAL_FUNC RightOfLane(thread const RightPlaces& at, uint span) thread {
    threadgroup const uint4* operands = at.operands + span * at.spanStep;
    MLXTS_UNROLL for (uint b = 0; b < 2; ++b) {
      even[b] = operands[b * PartOfX::kBlock];
      odd[b] = operands[b * PartOfX::kBlock + PartOfX::kBlock / 2];
    }
    factors = at.factors[span * 4];
  }
};

// Sums of a span for a lane's two rows, over its own columns and limbs.
template <typename S>
METAL_FUNC void multiply_span(thread float (&sums)[2], thread const SpanOfLane<S>& own,
                              thread const RightOfLane& right) {
  constexpr uint kLow = 0x0f0f0f0f, kHigh = 0xf0f0f0f0;
  int even[2][4] = {}, odd[2][4];
  MLXTS_UNROLL for (uint b = 0; b < 2; ++b) {
    MLXTS_UNROLL for (uint n = 0; n < 4; ++n) odd[b][n] = int(kWholeBits);
    const uint4 low = own.codes[b][0], high = own.codes[b][1], x = right.even[b], y = right.odd[b];
    machine::mma_bytes_k32(even[b], low.x & kLow, high.x & kLow, low.y & kLow, high.y & kLow, x.x, x.y);
    machine::mma_bytes_k32(odd[b], low.x & kHigh, high.x & kHigh, low.y & kHigh, high.y & kHigh, y.x, y.y);
    machine::mma_bytes_k32(even[b], low.z & kLow, high.z & kLow, low.w & kLow, high.w & kLow, x.z, x.w);
    machine::mma_bytes_k32(odd[b], low.z & kHigh, high.z & kHigh, low.w & kHigh, high.w & kHigh, y.z, y.w);
  }
  sums[0] = sums[1] = 0.0f;
  const float4 factors = right.factors;
  MLXTS_UNROLL for (uint b = 0; b < 2; ++b) MLXTS_UNROLL for (uint h = 0; h < 2; ++h) {
    const float upper = as_type<float>(even[b][2 * h] * 16 + odd[b][2 * h]) - kWhole;
    const float lower = as_type<float>(even[b][2 * h + 1] * 16 + odd[b][2 * h + 1]) - kWhole;
    const float unit = b == 0 ? factors.x : factors.z, sum = b == 0 ? factors.y : factors.w;
    sums[h] = metal::fma(own.scales[h][b], metal::fma(upper, 256.0f, lower) * unit,
                         metal::fma(own.biases[h][b], sum, sums[h]));
  }
}

// Adds up what the lanes have of a span of a tile: lanes j = 0 have the sum of the first row in the end, lanes j = 1
// that of the second.
METAL_FUNC void store_sums(threadgroup float* to, thread const float (&sums)[2], uint lane) {
  const uint g = lane / 4, j = lane % 4;
  const float other = metal::simd_shuffle_xor(j % 2 == 0 ? sums[1] : sums[0], ushort(1));
  float both = (j % 2 == 0 ? sums[0] : sums[1]) + other;
  both += metal::simd_shuffle_xor(both, ushort(2));
  if (j < 2) to[8 * j + g] = both;
}

// How the simdgroups of a threadgroup share its work. Each has the spans from its own on, every `spanStride`-th, of the
// threadgroup's tiles, or of some of these where there are more simdgroups than spans.
struct Share {
  uint spans, spanStride, own;  // own: the most spans of a simdgroup
  uint span, count;             // the simdgroup's first span, and how many it has
  uint slot, slots;             // it has the tiles slot, slot + slots, … of the threadgroup

  METAL_FUNC Share(uint spans, uint simdgroup) thread : spans(spans) {
    const uint simdgroups = simdgroups_of_threadgroup();
    spanStride = metal::min(simdgroups, spans);
    own = (spans + spanStride - 1) / spanStride;
    span = simdgroup % spanStride;
    count = (spans - span + spanStride - 1) / spanStride;
    slot = simdgroup / spanStride;
    slots = simdgroups / spanStride;
  }
};

// Where a simdgroup is: at which of its spans, of which of the threadgroup's tiles.
struct Turn {
  uint slot, span, own;

  METAL_FUNC Turn(thread const Share& share) thread : slot(share.slot), span(share.span), own(0) {}
  METAL_FUNC void next(thread const Share& share) thread {
    span += share.spanStride;
    if (++own == share.count) {
      own = 0;
      span = share.span;
      slot += share.slots;
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

// The sums of a threadgroup, whose tiles are the first one and every `stride`-th after it. The instructions for one
// span run once for nothing, with zeros for x and W, while other kernels still write x: so they need not be fetched
// when it is there.
template <typename S, typename Tiles>
METAL_FUNC SumsOfSpans sum_spans(device const bfloat* x, thread const Tiles& tiles, uint cols, uint groupSize,
                                 uint first, uint stride, uint lane, uint simdgroup) {
  constexpr uint kBytes = SpanInMemory<S>::kBytes;
  const uint count = tiles.count(), spans = cols / kSpan, simdgroups = simdgroups_of_threadgroup();
  const Share share(spans, simdgroup);
  threadgroup uchar* rings = (threadgroup uchar*)machine::threadgroup_memory();
  threadgroup uchar* ring = rings + simdgroup * kSpansAhead * kBytes;
  threadgroup uchar* zeros = rings + simdgroups * kSpansAhead * kBytes;
  threadgroup uchar* parts = zeros + kBytes;
  const PartOfX part(parts + simdgroup * share.own * PartOfX::kSpanBytes, share.own);
  threadgroup float* sumsOfSpans = (threadgroup float*)(parts + simdgroups * share.own * PartOfX::kSpanBytes);

  Turn ahead(share);
#pragma unroll 1
  for (uint i = 0; i < kSpansAhead; ++i) {
    const uint tile = first + ahead.slot * stride;
    if (tile < count) bring_span<S>(ring + i * kBytes, tiles.at(tile), cols, groupSize, ahead.span, lane);
    ahead.next(share);
    machine::copies_end();
  }
  for (uint i = simdgroup * kSimd + lane; i < kBytes / sizeof(uint4); i += simdgroups * kSimd)
    ((threadgroup uint4*)zeros)[i] = uint4(0);
  threadgroup_barrier(metal::mem_flags::mem_threadgroup);

  const PlacesOfLane<S> places(groupSize, lane);
  const RightPlaces rightPlaces(part, (threadgroup const uint4*)zeros, lane);
  device const bfloat* ownX = x + share.span * kSpan;
#pragma unroll 1
  for (uint pass = 0; pass < 2; ++pass) {
    const bool rehearses = pass == 0;
    OwnColumns columns;
    if (!rehearses) {
      // Until here others may still write x.
      machine::wait_for_kernels();
      columns.load(ownX, share.count, share.spanStride, lane);
    }
    columns.keep(part, rehearses ? 1 : share.count, lane);

    Turn now(share);
    if (first + now.slot * stride >= count) continue;
    uint turn = 0;
    float sums[2] = {0.0f, 0.0f};
    threadgroup float* to = sumsOfSpans + (now.slot * spans + now.span) * kTileRows;
    do {
      if (!rehearses) machine::copies_wait<kSpansAhead - 1>();
      simdgroup_barrier(metal::mem_flags::mem_threadgroup);
      threadgroup uchar* place = rehearses ? zeros : ring + turn * kBytes;
      const SpanOfLane<S> own(place, places);
      const RightOfLane right(rightPlaces, now.own);
      // The sums of the turn before, while this one's codes come.
      store_sums(to, sums, lane);
      // The lanes have it: another begins its way.
      simdgroup_barrier(metal::mem_flags::mem_threadgroup);
      if (!rehearses) {
        const uint tile = first + ahead.slot * stride;
        if (tile < count) bring_span<S>(place, tiles.at(tile), cols, groupSize, ahead.span, lane);
        ahead.next(share);
        machine::copies_end();
      }
      turn = turn + 1 == kSpansAhead ? 0 : turn + 1;
      multiply_span(sums, own, right);
      to = sumsOfSpans + (now.slot * spans + now.span) * kTileRows;
      now.next(share);
    } while (!rehearses && first + now.slot * stride < count);
    store_sums(to, sums, lane);
  }
  // Once more, for the check of what a kernel does before it waits: that does not know the passes.
  machine::wait_for_kernels();
  threadgroup_barrier(metal::mem_flags::mem_threadgroup);
  return {sumsOfSpans, spans, first, stride, count};
}

}  // namespace mlxts
