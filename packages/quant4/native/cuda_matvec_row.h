// One row of x in bf16 against codes of 4 bits, on NVIDIA's matrix units: what each step of decoding waits for. A
// simdgroup takes spans of 256 columns of 16 rows of W, one after another, and has the codes of the next on their way.
//
// A bf16 whose upper byte is 0 is its lower byte in units of 2^-133, so a code in the upper half of that byte, cut out
// of its word as it is, is an operand: the code in units of 2^-129. x, once for all rows, is multiplied by the power of
// two that brings the products back. A matrix unit aligns products by the exponents of their factors: codes in the lower
// half would lose four digits.
#pragma once
#include "cuda_matvec_operands.h"

namespace mlxts {

constant constexpr uint kSpan = 256, kSpanUnits = 4, kBlock = 128;  // columns; units of 64; half a span
constant constexpr uint kSpansAhead = 2;
constant constexpr uint kMostSpans = QUANTIZED_MATVEC_MOST_SPANS;
constant constexpr int kCodePower = 129;
constant constexpr uint kCodes = 0x00f000f0u;

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
  const int power = metal::min(254 - int(metal::min(metal::simd_max(most) >> 23, 254u)), kCodePower);
  const int first = metal::min(power, 127), second = power - first;
  const uint words[4] = {columns.x, columns.y, columns.z, columns.w};
  uint pairs[4];
  order_pairs<4>(pairs, words);
  MLXTS_UNROLL for (uint i = 0; i < 4; ++i) pairs[i] =
      PairsBf16::fma(PairsBf16::fma(pairs[i], pair_of_powers(first), 0), pair_of_powers(second), 0);
  row.operands[span * 32 + (lane / 16 * 4 + lane % 4) * 4 + lane / 4 % 4] =
      uint4(pairs[0], pairs[1], pairs[2], pairs[3]);
  if (lane % 8 == 0) row.sums[span * kSpanUnits + lane / 8] = sum;
  const int rest = kCodePower - power, less = metal::min(rest, 127);
  if (lane == 0) row.powers[span] = float2(power_of_two(rest - less), power_of_two(less));
}

// What a lane brings of a span: of two rows 32 neighboring columns of each block, scale and bias of a unit.
template <typename S>
struct SpanOfCodes {
  uint codes[2][2][4];  // [block][row]
  S scale[2], bias[2];
};
// Where they are: the lane's two rows, columns, if there are any, and unit.
struct SpanPlace {
  uint rows[2], cols, column, units, unit;

  METAL_FUNC SpanPlace(uint row, uint allRows, uint span, uint j, uint allCols) thread {
    rows[0] = metal::min(row, allRows - 1);
    rows[1] = metal::min(row + 8, allRows - 1);
    cols = allCols;
    column = span * kSpan + j * 32;
    units = allCols / 64;
    unit = metal::min(span * kSpanUnits + j, units - 1);
  }
};
// Codes of columns that W does not have stay what they were: x is zero there.
template <typename S>
METAL_FUNC void bring_codes(thread SpanOfCodes<S>& to, uint block, thread const AffineMatrix<S, 4>& w, SpanPlace at) {
  MLXTS_UNROLL for (uint h = 0; h < 2; ++h) if (at.column + block * kBlock < at.cols)
      machine::load_once(to.codes[block][h], (device const uchar*)w.words + (at.rows[h] * (at.cols / 2) + at.column / 2) +
                                                 block * (kBlock / 2));
}
template <typename S>
METAL_FUNC void bring_scales(thread SpanOfCodes<S>& to, thread const AffineMatrix<S, 4>& w, SpanPlace at, uint shift) {
  MLXTS_UNROLL for (uint h = 0; h < 2; ++h) {
    const uint group = at.rows[h] * (at.units >> shift) + (at.unit >> shift);
    to.scale[h] = w.scales[group];
    to.bias[h] = w.biases[group];
  }
}

// Where a simdgroup is: at a span of a tile of a matrix.
template <uint Matrices>
struct SpanCursor {
  uint tile, matrix, span;

  // Whether that was the simdgroup's last of these rows.
  METAL_FUNC bool next(uint simdgroup, uint simdgroups, uint spans) thread {
    span += simdgroups;
    if (span < spans) return false;
    span = simdgroup;
    matrix += 1;
    if (matrix == Matrices) {
      matrix = 0;
      tile += 1;
    }
    return true;
  }
};

// Sums of the simdgroup's spans: threadgroup sums [simdgroups][matrices][rows], behind x. `tiles` of 16 rows each.
template <typename S, uint Matrices>
void sum_spans(device const bfloat* x, thread const AffineMatrix<S, 4> (&w)[Matrices], uint tiles, thread RowOfX& row,
               uint lane, uint simdgroup, uint simdgroups) {
  const uint g = lane / 4, j = lane % 4;
  const uint cols = w[0].cols, spans = spans_of(cols), shift = metal::ctz(w[0].groupSize / 64);

  SpanCursor<Matrices> now = {0, 0, simdgroup}, ahead = now;
  SpanOfCodes<S> own[kSpansAhead] = {};
  MLXTS_UNROLL for (uint b = 0; b < kSpansAhead; ++b) {
    if (ahead.tile < tiles) {
      const AffineMatrix<S, 4> from = Matrices > 1 && ahead.matrix > 0 ? w[Matrices - 1] : w[0];
      const SpanPlace at(ahead.tile * kTileRows + g, from.rows, ahead.span, j, cols);
      MLXTS_UNROLL for (uint u = 0; u < 2; ++u) bring_codes(own[b], u, from, at);
      bring_scales(own[b], from, at, shift);
    }
    ahead.next(simdgroup, simdgroups, spans);
  }

  // Until here others may still write x.
  machine::wait_for_kernels();
  threadgroup uint4* zeros = row.zeros + simdgroup * 16;
  if (lane < 16) zeros[lane] = uint4(0);
  uint4 columns = columns_of(x, cols, simdgroup, lane);
  for (uint span = simdgroup; span < spans; span += simdgroups) {
    const uint4 brought = columns;
    columns = columns_of(x, cols, span + simdgroups, lane);
    keep_columns(row, brought, span, lane);
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
  while (now.tile < tiles) {
    MLXTS_UNROLL for (uint b = 0; b < kSpansAhead; ++b) {
      if (now.tile >= tiles) break;
      const bool more = ahead.tile < tiles;
      const AffineMatrix<S, 4> from = Matrices > 1 && ahead.matrix > 0 ? w[Matrices - 1] : w[0];
      const SpanPlace at(ahead.tile * kTileRows + g, from.rows, ahead.span, j, cols);
      float products[2][4] = {};
      MLXTS_UNROLL for (uint u = 0; u < 2; ++u) {
        threadgroup const uint4* operands = right[u] + now.span * step[u];
        MLXTS_UNROLL for (uint i = 0; i < 4; ++i) {
          const uint4 pairs = operands[4 * i];
          const uint low = own[b].codes[u][0][i], high = own[b].codes[u][1][i];
          PairsBf16::multiply_add(products[u], low << 4 & kCodes, high << 4 & kCodes, low & kCodes, high & kCodes,
                                  pairs.x, pairs.y);
          PairsBf16::multiply_add(products[u], low >> 4 & kCodes, high >> 4 & kCodes, low >> 8 & kCodes,
                                  high >> 8 & kCodes, pairs.z, pairs.w);
        }
        // These codes are used: others begin their way.
        if (more) bring_codes(own[b], u, from, at);
      }
      const float sum = unitSums[now.span * kSpanUnits];
      const float2 power = row.powers[now.span];
      MLXTS_UNROLL for (uint h = 0; h < 2; ++h) sums[h] =
          metal::fma(float(own[b].scale[h]) * power.y, (products[0][2 * h] + products[1][2 * h]) * power.x,
                     metal::fma(float(own[b].bias[h]), sum, sums[h]));
      if (more) bring_scales(own[b], from, at, shift);
      ahead.next(simdgroup, simdgroups, spans);
      const uint place = (now.matrix * tiles + now.tile) * kTileRows;
      if (now.next(simdgroup, simdgroups, spans)) {
        // Lanes j = 0 have the sum of the first row in the end, lanes j = 1 that of the second.
        const float other = metal::simd_shuffle_xor(j % 2 == 0 ? sums[1] : sums[0], ushort(1));
        float both = (j % 2 == 0 ? sums[0] : sums[1]) + other;
        both += metal::simd_shuffle_xor(both, ushort(2));
        if (j < 2) to[place] = both;
        sums[0] = sums[1] = 0.0f;
      }
    }
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
