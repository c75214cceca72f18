// What the Metal kernels of the chunk stages share where each channel of a key has its own gate.
#pragma once
#include "chunk_metal.h"

namespace mlxts {

METAL_FUNC float4 exp4(float4 x) {
  return float4(metal::precise::exp(x.x), metal::precise::exp(x.y), metal::precise::exp(x.z), metal::precise::exp(x.w));
}

// exp_pair of four.
METAL_FUNC float4 exp4_pair(float4 hi, float4 lo) { return exp4(hi) * (1.0f + lo * (1.0f + 0.5f * lo)); }

// Cumulated gates of a chunk as pairs in device memory, rows `stride` apart.
struct ChannelGates {
  device const float* hi;
  device const float* lo;
  bool pair;
  uint stride;
};

METAL_FUNC float4 high4(ChannelGates g, uint row, uint column) { return load4(g.hi + row * g.stride + column); }

METAL_FUNC float4 low4(ChannelGates g, uint row, uint column) {
  return g.pair ? load4(g.lo + row * g.stride + column) : float4(0.0f);
}

// Rows into threadgroup memory, each element times exp of its gate and, if `Scaled`, the factor of its row, with zeros
// up to a multiple of eight rows. Columns are a multiple of four.
template <bool Scaled, typename To, typename T, uint Columns, uint Stride>
METAL_FUNC void stage_decayed(threadgroup To* to, device const T* from, uint stride, ChannelGates gates, uint rows,
                              uint columns, threadgroup const float* factor, uint index, uint threads) {
  const uint all = (rows + 7) / 8 * 8 * (Columns / 4);
  for (uint i = index; i < all; i += threads) {
    const uint row = i / (Columns / 4), column = i % (Columns / 4) * 4;
    if (column >= columns) continue;
    float4 v = float4(0.0f);
    if (row < rows) {
      float4 scale = exp4_pair(high4(gates, row, column), low4(gates, row, column));
      if (Scaled) scale *= factor[row];
      v = load4(from + row * stride + column) * scale;
    }
    store4_aligned(to + row * Stride + column, v);
  }
}

// A panel of a chunk's rows of x and y, and of their gates as pairs: what Σ_c x_ic y_jc exp(G_ic − G_jc) is made of.
// Rows of x and y are `Columns` elements and 16 bytes apart, rows of gates `Columns` and four.
template <typename T, uint Columns>
struct ChannelPanel {
  threadgroup float* hi;
  threadgroup float* lo;
  threadgroup T* x;
  threadgroup T* y;
};

template <typename T, uint Columns>
METAL_FUNC ChannelPanel<T, Columns> channel_panel(threadgroup float* memory, uint length) {
  threadgroup float* lo = memory + length * (Columns + 4);
  threadgroup T* x = (threadgroup T*)(lo + length * (Columns + 4));
  return {memory, lo, x, x + length * (Columns + 16 / sizeof(T))};
}

// Rows that are not real, up to a multiple of eight, have the last one's gates: no difference overflows.
template <typename T, uint Columns>
METAL_FUNC void stage_gates(ChannelPanel<T, Columns> to, ChannelGates gates, uint rows, uint columns, uint index,
                            uint threads) {
  const uint all = (rows + 7) / 8 * 8 * (Columns / 4);
  for (uint i = index; i < all; i += threads) {
    const uint row = i / (Columns / 4), column = i % (Columns / 4) * 4, from = metal::min(row, rows - 1);
    if (column >= columns) continue;
    store4_aligned(to.hi + row * (Columns + 4) + column, high4(gates, from, column));
    store4_aligned(to.lo + row * (Columns + 4) + column, low4(gates, from, column));
  }
}

// exp(G_ic − G_jc), for i ≥ j.
template <typename T, uint Columns>
METAL_FUNC float decay_between(ChannelPanel<T, Columns> panel, uint i, uint j, uint c) {
  const uint a = i * (Columns + 4) + c, b = j * (Columns + 4) + c;
  return metal::precise::exp((panel.hi[a] - panel.hi[b]) + (panel.lo[a] - panel.lo[b]));
}

// The pair of rows of a diagonal block, row > column, that a lane sums up; the last lanes have the last pair too.
struct PairLane {
  uint row, column;
};

METAL_FUNC uint pair_index(uint row, uint column) { return row * (row - 1) / 2 + column; }

METAL_FUNC PairLane pair_lane(uint lane) {
  const uint pair = metal::min(lane, pair_index(7, 6));
  uint row = 1;
  for (uint r = 2; r < 8; ++r) row += pair >= pair_index(r, 0);
  return {row, pair - pair_index(row, 0)};
}

// Adds the products of a panel to a row of blocks, number `strip`, up to the diagonal. Blocks before it are matrix
// products of x_ic exp(G_ic − G_rc) and y_jc exp(G_rc − G_jc), r the first row of the strip, so that no exponent is
// positive. In the diagonal block each lane adds to a pair of rows; with `Diagonal` products of rows with themselves
// are summed beside.
template <uint Blocks, bool Diagonal, typename T, uint Columns>
METAL_FUNC void add_channel_products(thread Block* sums, thread float& sum, uint strip, ChannelPanel<T, Columns> panel,
                                     uint columns, BlockLane at, PairLane own) {
  constexpr uint kStride = Columns + 16 / sizeof(T);
  const uint first = strip * 8;
  for (uint c = 0; c < columns; c += 8) {
    Block x = load_block(panel.x + first * kStride + c, kStride, at);
    const uint column = c + at.column;
    const Block left = block(x.thread_elements()[0] * decay_between(panel, first + at.row, first, column),
                             x.thread_elements()[1] * decay_between(panel, first + at.row, first, column + 1));
    MLXTS_UNROLL
    for (uint b = 0; b < Blocks; ++b) {
      if (b > strip) continue;
      Block y = load_transposed(panel.y + b * 8 * kStride + c, kStride, at);
      const uint row = b * 8 + at.column;
      if (b < strip)
        multiply_add(sums[b], left,
                     block(y.thread_elements()[0] * decay_between(panel, first, row, c + at.row),
                           y.thread_elements()[1] * decay_between(panel, first, row + 1, c + at.row)));
      else if (Diagonal)
        multiply_add(sums[b], x, y);
    }
    threadgroup const T* xRow = panel.x + (first + own.row) * kStride;
    threadgroup const T* yRow = panel.y + (first + own.column) * kStride;
    for (uint i = c; i < c + 8; ++i)
      sum += float(xRow[i]) * float(yRow[i]) * decay_between(panel, first + own.row, first + own.column, i);
  }
}

// Puts the sums of pairs where they belong in the diagonal block.
template <uint Blocks>
METAL_FUNC void place_pairs(thread Block* sums, float sum, uint strip, BlockLane at) {
  const uint column = at.column;
  const bool first = column < at.row, second = column + 1 < at.row;
  const float a = metal::simd_shuffle(sum, ushort(first ? pair_index(at.row, column) : 0));
  const float b = metal::simd_shuffle(sum, ushort(second ? pair_index(at.row, column + 1) : 0));
  MLXTS_UNROLL
  for (uint i = 0; i < Blocks; ++i) {
    if (i != strip) continue;
    if (first) sums[i].thread_elements()[0] = a;
    if (second) sums[i].thread_elements()[1] = b;
  }
}

}  // namespace mlxts
