// One row of x in bf16 against codes of 4 bits, on NVIDIA's matrix units: what each step of decoding waits for. A
// simdgroup takes spans of 256 columns of 16 rows of W, one after another, and has the codes of the next on their way.
//
// A bf16 whose upper byte is 0 is its lower byte in units of 2^-133. So one instruction cuts two codes, or two times
// sixteen codes, out of their word, and x, once for all rows, is brought to the power of two that they leave room for.
#pragma once
#include "cuda_matvec_operands.h"

namespace mlxts {

constant constexpr uint kSpan = 256, kSpanUnits = 4, kBlock = 128;  // columns; units of 64; half a span
constant constexpr uint kMostSpans = QUANTIZED_MATVEC_MOST_SPANS;
constant constexpr uint kCodePower = 133;

METAL_FUNC uint spans_of(uint cols) { return (cols + kSpan - 1) / kSpan; }

METAL_FUNC float power_of_two(int n) { return as_type<float>(uint(127 + n) << 23); }
METAL_FUNC uint pair_of_powers(int n) { return uint(127 + n) << 7 | uint(127 + n) << 23; }

// A row of x in threadgroup memory. Lane (g, j) has columns 32 j … of each block as right operands, four columns of a
// word at [span][block][word][j], and zeros for the units that are not column g's.
struct RowOfX {
  threadgroup uint4* operands;
  threadgroup uint4* zeros;    // as many as a block has, for each simdgroup
  threadgroup float* sums;     // of units
  threadgroup float2* powers;  // of spans: products times both are what x gives as it is
  threadgroup float* free;     // what follows

  METAL_FUNC RowOfX(threadgroup uint4* memory, uint spans, uint simdgroups) thread {
    operands = memory;
    // Not in the same banks as operands.
    zeros = operands + spans * 32 + 4;
    sums = (threadgroup float*)(zeros + simdgroups * 16);
    powers = (threadgroup float2*)(sums + spans * kSpanUnits);
    free = (threadgroup float*)(powers + spans);
  }
};

// Eight columns of a span of x as a lane brings them; zeros behind the end.
METAL_FUNC uint4 columns_of(device const bfloat* x, uint cols, uint span, uint lane) {
  const uint column = span * kSpan + lane * 8;
  return column < cols ? *(device const uint4*)(x + column) : uint4(0);
}

METAL_FUNC void keep_columns(thread const RowOfX& row, uint4 columns, uint span, uint lane) {
  uint most = 0;
  float sum = 0.0f;
  MLXTS_UNROLL for (uint i = 0; i < 4; ++i) {
    const uint low = columns[i] << 16, high = columns[i] & 0xffff0000u;
    most = metal::max(most, metal::max(low & 0x7fffffffu, high & 0x7fffffffu));
    sum += as_type<float>(low) + as_type<float>(high);
  }
  MLXTS_UNROLL for (uint by = 1; by < 8; by *= 2) sum += metal::simd_shuffle_xor(sum, ushort(by));
  // As large as bf16 can be, or as products need no power.
  const int power = metal::min(254 - int(metal::min(metal::simd_max(most) >> 23, 254u)), int(kCodePower));
  const int first = metal::min(power, 127), second = power - first;
  const uint words[4] = {columns.x, columns.y, columns.z, columns.w};
  uint pairs[4];
  order_pairs<4>(pairs, words);
  const uint once = pair_of_powers(first), even = pair_of_powers(second), odd = pair_of_powers(second - 4);
  MLXTS_UNROLL for (uint i = 0; i < 4; ++i) pairs[i] =
      PairsBf16::fma(PairsBf16::fma(pairs[i], once, 0), i % 2 == 0 ? even : odd, 0);
  row.operands[span * 32 + (lane / 16 * 4 + lane % 4) * 4 + lane / 4 % 4] =
      uint4(pairs[0], pairs[1], pairs[2], pairs[3]);
  if (lane % 8 == 0) row.sums[span * kSpanUnits + lane / 8] = sum;
  const int rest = int(kCodePower) - power, small = metal::min(rest, 6);
  if (lane == 0) row.powers[span] = float2(power_of_two(small), power_of_two(rest - small));
}

// What a lane brings of a span: of two rows 32 neighboring columns of each block, scale and bias of a unit.
template <typename S>
struct SpanOfCodes {
  uint4 codes[2][2];  // [block][row]
  S scale[2], bias[2];
};
// Where the lane's columns of a span are, if there are any.
struct SpanPlace {
  uint column, unit, units, cols;

  METAL_FUNC SpanPlace(uint span, uint j, uint cols_) thread
      : column(span * kSpan + j * 32), unit(span * kSpanUnits + j), units(cols_ / 64), cols(cols_) {}
};
template <typename S>
METAL_FUNC void bring_scales(thread SpanOfCodes<S>& to, thread const AffineMatrix<S, 4>& w, thread const uint (&rows)[2],
                             SpanPlace at, uint shift) {
  const uint group = metal::min(at.unit, at.units - 1) >> shift;
  MLXTS_UNROLL for (uint h = 0; h < 2; ++h) {
    to.scale[h] = w.scales[rows[h] * (at.units >> shift) + group];
    to.bias[h] = w.biases[rows[h] * (at.units >> shift) + group];
  }
}
// Codes of columns that W has not stay what they were: x is zero there.
template <typename S>
METAL_FUNC void bring_codes(thread SpanOfCodes<S>& to, uint block, thread const AffineMatrix<S, 4>& w,
                            thread const uint (&rows)[2], SpanPlace at) {
  MLXTS_UNROLL for (uint h = 0; h < 2; ++h) if (at.column + block * kBlock < at.cols) to.codes[block][h] =
      *(device const uint4*)((device const uchar*)w.words + (rows[h] * (at.cols / 2) + at.column / 2) + block * (kBlock / 2));
}

// Sums of the simdgroup's spans: threadgroup sums [simdgroups][matrices][rows], behind x. `tiles` of 16 rows each.
template <typename S, uint Matrices>
void sum_spans(device const bfloat* x, thread const AffineMatrix<S, 4> (&w)[Matrices], uint tiles, thread RowOfX& row,
               uint lane, uint simdgroup, uint simdgroups) {
  const uint g = lane / 4, j = lane % 4;
  const uint cols = w[0].cols, spans = spans_of(cols), shift = metal::ctz(w[0].groupSize / 64);

  uint tile = 0, matrix = 0, span = simdgroup;
  uint rows[2] = {metal::min(g, w[0].rows - 1), metal::min(g + 8, w[0].rows - 1)};
  SpanOfCodes<S> own = {};
  bring_codes(own, 0, w[0], rows, SpanPlace(span, j, cols));
  bring_codes(own, 1, w[0], rows, SpanPlace(span, j, cols));
  bring_scales(own, w[0], rows, SpanPlace(span, j, cols), shift);

  threadgroup uint4* zeros = row.zeros + simdgroup * 16;
  if (lane < 16) zeros[lane] = uint4(0);
  uint4 columns = columns_of(x, cols, simdgroup, lane);
  for (uint s = simdgroup; s < spans; s += simdgroups) {
    const uint4 now = columns;
    columns = columns_of(x, cols, s + simdgroups, lane);
    keep_columns(row, now, s, lane);
  }
  simdgroup_barrier(metal::mem_flags::mem_threadgroup);

  // A lane has operands of one block, or none: those of the unit that is column g's.
  threadgroup const uint4* right[2];
  uint step[2];
  MLXTS_UNROLL for (uint u = 0; u < 2; ++u) {
    const bool mine = g / 2 == 2 * u + j / 2;
    step[u] = mine ? 32 : 0;
    right[u] = (mine ? row.operands + u * 16 : zeros) + j;
  }
  threadgroup const float* unitSums = row.sums + j;
  threadgroup float* to = row.free + (simdgroup * Matrices * tiles * kTileRows + 8 * (j % 2) + g);
  float sums[2] = {0.0f, 0.0f};
  for (;;) {
    const uint now = span, place = (matrix * tiles + tile) * kTileRows;
    span += simdgroups;
    const bool last = span >= spans;
    if (last) {
      span = simdgroup;
      matrix += 1;
      if (matrix == Matrices) {
        matrix = 0;
        tile += 1;
        MLXTS_UNROLL for (uint h = 0; h < 2; ++h) rows[h] = metal::min(tile * kTileRows + 8 * h + g, w[0].rows - 1);
      }
    }
    const bool more = tile < tiles;
    const AffineMatrix<S, 4> next = Matrices > 1 && matrix > 0 ? w[Matrices - 1] : w[0];
    const SpanPlace at(span, j, cols);
    float products[2][4] = {};
    MLXTS_UNROLL for (uint u = 0; u < 2; ++u) {
      threadgroup const uint4* operands = right[u] + now * step[u];
      MLXTS_UNROLL for (uint i = 0; i < 4; ++i) {
        const uint4 pairs = operands[4 * i];
        const uint low = own.codes[u][0][i], high = own.codes[u][1][i];
        PairsBf16::multiply_add(products[u], low & 0x000f000fu, high & 0x000f000fu, low & 0x00f000f0u,
                                high & 0x00f000f0u, pairs.x, pairs.y);
        PairsBf16::multiply_add(products[u], low >> 8 & 0x000f000fu, high >> 8 & 0x000f000fu, low >> 8 & 0x00f000f0u,
                                high >> 8 & 0x00f000f0u, pairs.z, pairs.w);
      }
      // These codes are used: the next span's begin their way.
      if (more) bring_codes(own, u, next, rows, at);
    }
    const float sum = unitSums[now * kSpanUnits];
    const float2 power = row.powers[now];
    MLXTS_UNROLL for (uint h = 0; h < 2; ++h) sums[h] =
        metal::fma(float(own.scale[h]) * power.y, (products[0][2 * h] + products[1][2 * h]) * power.x,
                   metal::fma(float(own.bias[h]), sum, sums[h]));
    if (more) bring_scales(own, next, rows, at, shift);
    if (last) {
      // Lanes j = 0 have the sum of the first row in the end, lanes j = 1 that of the second.
      const float other = metal::simd_shuffle_xor(j % 2 == 0 ? sums[1] : sums[0], ushort(1));
      float both = (j % 2 == 0 ? sums[0] : sums[1]) + other;
      both += metal::simd_shuffle_xor(both, ushort(2));
      if (j < 2) to[place] = both;
      sums[0] = sums[1] = 0.0f;
    }
    if (!more) break;
  }
}

// A thread's output of each of the matrices, if there is one.
template <typename S, uint Matrices>
METAL_FUNC void row_products(thread float (&products)[Matrices], device const bfloat* x,
                             thread const AffineMatrix<S, 4> (&w)[Matrices], uint lane, uint simdgroup) {
  const uint simdgroups = simdgroups_of_threadgroup(), tiles = machine::threads().y;
  RowOfX row((threadgroup uint4*)machine::threadgroup_memory(), spans_of(w[0].cols), simdgroups);
  sum_spans(x, w, tiles, row, lane, simdgroup, simdgroups);
  threadgroup_barrier(metal::mem_flags::mem_threadgroup);
  const uint r = simdgroup * kSimd + lane, rows = tiles * kTileRows;
  if (r >= rows) return;
  MLXTS_UNROLL for (uint t = 0; t < Matrices; ++t) {
    products[t] = 0.0f;
#pragma unroll 4
    for (uint s = 0; s < simdgroups; ++s) products[t] += row.free[(s * Matrices + t) * rows + r];
  }
}

}  // namespace mlxts
