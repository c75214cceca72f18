// What the Metal kernels of the chunk stages share where each channel of a key has its own gate.
#pragma once
#include "chunk_metal.h"

namespace mlxts {

METAL_FUNC float4 exp4(float4 x) {
  return float4(metal::precise::exp(x.x), metal::precise::exp(x.y), metal::precise::exp(x.z), metal::precise::exp(x.w));
}

// exp_of_sum of four.
METAL_FUNC float4 exp4_of_sum(float4 high, float4 low) { return exp4(high) * (1.0f + low * (1.0f + 0.5f * low)); }

METAL_FUNC float4 high4(CumulativeGateTensors G, uint row, uint column) {
  return load4(G.high + row * G.stride + column);
}

METAL_FUNC float4 low4(CumulativeGateTensors G, uint row, uint column) {
  return G.carriesLow ? load4(G.low + row * G.stride + column) : float4(0.0f);
}

// A chunk's rows into threadgroup memory, each element times exp of its gate and, if `Scaled`, the factor of its row,
// with zeros up to a multiple of eight rows. Columns are a multiple of four.
template <bool Scaled, typename To, typename T, uint Columns, uint Stride>
METAL_FUNC void stage_decayed(threadgroup To* to, device const T* from, uint stride, CumulativeGateTensors G,
                              uint columns, threadgroup const float* factors, ChunkThread t) {
  const uint all = (t.rows + 7) / 8 * 8 * (Columns / 4);
  for (uint i = t.index; i < all; i += t.threads) {
    const uint row = i / (Columns / 4), column = i % (Columns / 4) * 4;
    if (column >= columns) continue;
    float4 v = float4(0.0f);
    if (row < t.rows) {
      float4 scale = exp4_of_sum(high4(G, row, column), low4(G, row, column));
      if (Scaled) scale *= factors[row];
      v = load4(from + row * stride + column) * scale;
    }
    store4_aligned(to + row * Stride + column, v);
  }
}

// A panel of a chunk: what Σ_c x_ic y_jc exp(G_ic − G_jc) is summed up from. Rows of `Columns` elements of x and as
// many of y, and of the high and low parts of G; gaps of `Gap` bytes between them.
template <typename T, uint Columns, uint Gap>
struct ChannelPanel {
  threadgroup T* operands;
  threadgroup float* gates;
};

// Rows that are not real, up to a multiple of eight, have the last one's gates: no difference overflows.
template <typename T, uint Columns, uint Gap>
METAL_FUNC void stage_gates(ChannelPanel<T, Columns, Gap> to, CumulativeGateTensors G, uint columns, ChunkThread t) {
  const uint all = (t.rows + 7) / 8 * 8 * (Columns / 4);
  for (uint i = t.index; i < all; i += t.threads) {
    const uint row = i / (Columns / 4), column = i % (Columns / 4) * 4, from = metal::min(row, t.rows - 1);
    if (column >= columns) continue;
    threadgroup float* high = to.gates + row * (2 * Columns + Gap / sizeof(float)) + column;
    store4_aligned(high, high4(G, from, column));
    store4_aligned(high + Columns, low4(G, from, column));
  }
}

// exp(G_ic − G_jc), for i ≥ j.
template <typename T, uint Columns, uint Gap>
METAL_FUNC float decay_between(ChannelPanel<T, Columns, Gap> panel, uint i, uint j, uint c) {
  threadgroup const float* a = panel.gates + i * (2 * Columns + Gap / sizeof(float)) + c;
  threadgroup const float* b = panel.gates + j * (2 * Columns + Gap / sizeof(float)) + c;
  return metal::precise::exp((a[0] - b[0]) + (a[Columns] - b[Columns]));
}

// The two rows of a diagonal block, row > column, whose product a lane sums up; the last lanes have the last pair too.
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
// positive. In the diagonal block each lane adds to the product of a pair of rows; with `Diagonal` products of rows
// with themselves are summed beside.
template <uint Blocks, bool Diagonal, typename T, uint Columns, uint Gap>
METAL_FUNC void add_strip_products(thread Block* sums, thread float& sum, uint strip,
                                   ChannelPanel<T, Columns, Gap> panel, uint columns, BlockLane at, PairLane own) {
  constexpr uint kStride = 2 * Columns + Gap / sizeof(T);
  threadgroup const T* xs = panel.operands;
  threadgroup const T* ys = panel.operands + Columns;
  const uint first = strip * 8;
  for (uint c = 0; c < columns; c += 8) {
    Block x = load_block(xs + first * kStride + c, kStride, at);
    const uint column = c + at.column;
    const Block left = block(x.thread_elements()[0] * decay_between(panel, first + at.row, first, column),
                             x.thread_elements()[1] * decay_between(panel, first + at.row, first, column + 1));
    MLXTS_UNROLL
    for (uint b = 0; b < Blocks; ++b) {
      if (b > strip) continue;
      Block y = load_transposed(ys + b * 8 * kStride + c, kStride, at);
      const uint row = b * 8 + at.column;
      if (b < strip)
        multiply_add(sums[b], left,
                     block(y.thread_elements()[0] * decay_between(panel, first, row, c + at.row),
                           y.thread_elements()[1] * decay_between(panel, first, row + 1, c + at.row)));
      else if (Diagonal)
        multiply_add(sums[b], x, y);
    }
    threadgroup const T* xRow = xs + (first + own.row) * kStride;
    threadgroup const T* yRow = ys + (first + own.column) * kStride;
    for (uint i = c; i < c + 8; ++i)
      sum += float(xRow[i]) * float(yRow[i]) * decay_between(panel, first + own.row, first + own.column, i);
  }
}

// Puts the products of pairs where they belong in the diagonal block.
template <uint Blocks>
METAL_FUNC void place_strip_pairs(thread Block* sums, float sum, uint strip, BlockLane at) {
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

// A lane's products of pairs, one for each strip of its simdgroup.
struct PairSums {
  float top, bottom;
};

// Both for the two strips of a simdgroup.
template <bool Diagonal, typename T, uint Columns, uint Gap>
METAL_FUNC void add_channel_products(thread Triangle& sums, thread PairSums& pairs, ChannelPanel<T, Columns, Gap> panel,
                                     uint columns, PairLane own, ChunkThread t) {
  const Strips s = t.strips;
  if (s.topBlocks) add_strip_products<4, Diagonal>(sums.top, pairs.top, s.top, panel, columns, t.at, own);
  if (s.bottomBlocks) add_strip_products<8, Diagonal>(sums.bottom, pairs.bottom, s.bottom, panel, columns, t.at, own);
}

METAL_FUNC void place_pairs(thread Triangle& sums, PairSums pairs, ChunkThread t) {
  place_strip_pairs<4>(sums.top, pairs.top, t.strips.top, t.at);
  place_strip_pairs<8>(sums.bottom, pairs.bottom, t.strips.bottom, t.at);
}

}  // namespace mlxts
