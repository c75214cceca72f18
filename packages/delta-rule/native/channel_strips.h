// Σ_c x_ic y_jc exp(G_ic − G_jc) for i ≥ j of a chunk, where each channel of a key has its own gate.
#pragma once
#include "channels_metal.h"
#include "chunk_strips.h"

namespace mlxts {

constant constexpr uint kChannels = 16;  // of a panel

// 16 channels of a chunk in threadgroup memory: tiles of all rows of x, of y, and of the high and low parts of G.
template <typename T>
struct ChannelTiles {
  threadgroup T* x;
  threadgroup T* y;
  CumulativeGates G;
  threadgroup float* decayed;  // 16 rows of x or y that a simdgroup multiplies, its own
};

// exp(G_i − G_j) for four channels, i ≥ j.
template <typename T>
METAL_FUNC float4 decay_between(ChannelTiles<T> panel, uint i, uint j, uint c) {
  constexpr uint kStride = tile_stride<float>(kChannels);
  const uint a = i * kStride + c, b = j * kStride + c;
  return exp4((load4_aligned(panel.G.high + a) - load4_aligned(panel.G.high + b)) +
              (load4_aligned(panel.G.low + a) - load4_aligned(panel.G.low + b)));
}

// Rows `first` … `first` + 15 of x or y to panel.decayed, decayed from row `reference` on, or up to it where they lie
// before it; zeros for those that are not among `begin` … `end` − 1.
template <typename T>
METAL_FUNC void stage_decayed(ChannelTiles<T> panel, threadgroup const T* from, uint first, uint reference, uint begin,
                              uint end, uint lane) {
  simdgroup_barrier(metal::mem_flags::mem_threadgroup);  // what was there has been loaded
  for (uint piece = lane; piece < kStrip * kChannels / 4; piece += kSimd) {
    const uint row = first + piece / (kChannels / 4), c = piece % (kChannels / 4) * 4;
    float4 v = float4(0.0f);
    if (row >= begin && row < end)
      v = load4_aligned(from + row * tile_stride<T>(kChannels) + c) *
          decay_between(panel, metal::max(row, reference), metal::min(row, reference), c);
    store4_aligned(panel.decayed + (row - first) * tile_stride<float>(kChannels) + c, v);
  }
  simdgroup_barrier(metal::mem_flags::mem_threadgroup);
}

// Rows of x from `row` on, decayed since it, as a left operand; rows of y up to it, decayed until then, as a right one.
// No exponent is positive.
template <typename T>
METAL_FUNC TileLeft<float, kStrip, kChannels> decayed_left(ChannelTiles<T> panel, uint first, uint row, uint end,
                                                           uint lane) {
  stage_decayed(panel, panel.x, first, row, row, end, lane);
  TileLeft<float, kStrip, kChannels> left;
  load(left, panel.decayed, tile_stride<float>(kChannels));
  return left;
}

template <typename T>
METAL_FUNC TileRight<float, kChannels, kStrip> decayed_right(ChannelTiles<T> panel, uint first, uint row, uint lane) {
  stage_decayed(panel, panel.y, first, row, first, row, lane);
  TileRight<float, kChannels, kStrip> right;
  load_transposed(right, panel.decayed, tile_stride<float>(kChannels));
  return right;
}

// A strip's rows with themselves: the second eight with the first as products, the others element by element.
template <typename T>
METAL_FUNC void add_diagonal(thread StripSum& sum, ChannelTiles<T> panel, Strip s) {
  constexpr uint kStride = tile_stride<T>(kChannels);
  if (s.rows > 8) {
    const uint middle = s.first + 8, end = s.first + s.rows;
    const auto left = decayed_left(panel, s.first, middle, end, s.lane);
    const auto right = decayed_right(panel, s.first, middle, s.lane);
    multiply_add(sum, left, right);
  }
  MLXTS_UNROLL for (uint r = 0; r < 2; ++r) {
    for (uint e = 0; e < 2; ++e) {
      const uint row = 8 * r + s.row, column = 8 * r + s.column + e;
      if (column > row || row >= s.rows) continue;
      const uint i = s.first + row, j = s.first + column;
      float4 products = float4(0.0f);
      for (uint c = 0; c < kChannels; c += 4)
        products += load4_aligned(panel.x + i * kStride + c) * load4_aligned(panel.y + j * kStride + c) *
                    decay_between(panel, i, j, c);
      sum.at(r, r, e) += (products.x + products.y) + (products.z + products.w);
    }
  }
}

// Adds a panel's products to the strip's sums up to the diagonal, which has a sum of its own.
template <typename T>
METAL_FUNC void add_panel(thread StripSum (&sums)[kStrips], thread StripSum& diagonal, ChannelTiles<T> panel, Strip s) {
  if (s.number > 0) {
    const auto left = decayed_left(panel, s.first, s.first, s.first + s.rows, s.lane);
    for (uint j = 0; j < s.number; ++j) {
      const auto right = decayed_right(panel, j * kStrip, s.first, s.lane);
      MLXTS_UNROLL for (uint i = 0; i + 1 < kStrips; ++i) {
        if (i == j) multiply_add(sums[i], left, right);
      }
    }
  }
  add_diagonal(diagonal, panel, s);
}

// What the products of a chunk are summed up from, in device memory, from a strip's first row on; rows of x and y lie
// `stride` apart.
template <typename T>
struct ChannelRows {
  device const T* x;
  device const T* y;
  uint stride, K;
  CumulativeGateTensors G;
};

// A simdgroup's rows of a panel on their way, see TileCopy.
template <typename T>
struct ChannelCopy {
  StripCopy<T, T, kChannels> x, y;
  StripCopy<float, float, kChannels> high, low;

  METAL_FUNC void start(ChannelRows<T> from, uint c, Strip s) thread {
    const uint left = from.K - c;
    x.start(from.x + c, from.stride, s.rows, left, s.lane);
    y.start(from.y + c, from.stride, s.rows, left, s.lane);
    high.start(from.G.high + c, from.G.stride, s.rows, left, s.lane);
    low.start(from.G.low + c, from.G.stride, from.G.carriesLow ? s.rows : 0, left, s.lane);
  }
  template <typename Change>
  METAL_FUNC void finish(ChannelTiles<T> panel, Change change, Strip s) const thread {
    const uint own = s.first * tile_stride<T>(kChannels), ownGates = s.first * tile_stride<float>(kChannels);
    x.finish(panel.x + own, s.lane, change);
    y.finish(panel.y + own, s.lane);
    high.finish(panel.G.high + ownGates, s.lane);
    low.finish(panel.G.low + ownGates, s.lane);
  }
};

// All products of a chunk; `change` is applied to x on the way.
template <typename T, typename Change>
METAL_FUNC void sum_channel_products(thread StripSum (&sums)[kStrips], ChannelRows<T> from, ChannelTiles<T> panel,
                                     Change change, Strip s) {
  panel.decayed += s.first * tile_stride<float>(kChannels);
  StripSum diagonal;
  fill(diagonal, 0.0f);
  ChannelCopy<T> copy;
  copy.start(from, 0, s);
  for (uint c = 0; c < from.K; c += kChannels) {
    if (c > 0) threadgroup_barrier(metal::mem_flags::mem_threadgroup);
    copy.finish(panel, change, s);
    threadgroup_barrier(metal::mem_flags::mem_threadgroup);
    if (c + kChannels < from.K) copy.start(from, c + kChannels, s);
    if (s.rows > 0) add_panel(sums, diagonal, panel, s);
  }
  MLXTS_UNROLL for (uint j = 0; j < kStrips; ++j) {
    if (j == s.number) sums[j] = diagonal;
  }
}

}  // namespace mlxts
