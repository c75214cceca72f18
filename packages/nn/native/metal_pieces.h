// A piece of a cache on a GPU: of a block of keys each simdgroup scores eight; then the simdgroups share the rows, for
// the softmax; then each adds the values of its own columns. So a tile of query rows reads every key and value once,
// straight from the cache. All sums and factors are floats. In a CUDA translation cuda_pieces.h takes this header's
// place.
#pragma once
#include "metal_matrix.h"
#include "sdpa_tile.h"

namespace mlxts {

constant constexpr uint kBlockKeys = SDPA_PIECES_BLOCK_KEYS, kSimdgroups = SDPA_PIECES_SIMDGROUPS;
constant constexpr uint kScoreStride = SDPA_PIECES_SCORE_STRIDE;
static_assert(kBlockKeys == 8 * kSimdgroups, "each simdgroup scores eight keys of a block");
static_assert(kBlockKeys == 2 * kSimd, "a lane has two scores of a row");
constant constexpr int kRowFragments = SDPA_PIECES_TILE_ROWS / 8;
// Columns of a simdgroup go by strips of 16, of which a lane has 4 neighbors of a row, in two fragments.
constant constexpr uint kStrip = 16;
constant constexpr int kStrips = SDPA_PIECES_TILE_COLUMNS / SDPA_PIECES_SIMDGROUPS / kStrip;

// What a simdgroup keeps of a tile: the sums of all rows in its columns, and the softmax of every eighth row.
struct AttentionState {
  metal::simdgroup_float8x8 sums[kRowFragments][2 * kStrips];
  float maximum[kRowFragments], denominator[kRowFragments];
};

// How many strips a simdgroup has in the pass from `column` on, and a lane's first column of a strip.
METAL_FUNC uint strips(uint dim, uint column) {
  constexpr uint kAll = kStrip * kSimdgroups;
  return (metal::min(dim - column, uint(SDPA_PIECES_TILE_COLUMNS)) + kAll - 1) / kAll;
}
METAL_FUNC uint strip_column(uint dim, uint column, uint strip, uint lane, uint simdgroup) {
  return column + (simdgroup * strips(dim, column) + strip) * kStrip + 2 * matrix_column(lane);
}

// A lane's four neighboring columns of a strip.
METAL_FUNC float4 strip_sums(thread AttentionState& state, int i, int strip) {
  thread const float2& a = state.sums[i][2 * strip].thread_elements();
  thread const float2& b = state.sums[i][2 * strip + 1].thread_elements();
  return float4(a.x, a.y, b.x, b.y);
}

// Scores of eight keys with all rows. Fragments take 32 columns at a time in the order 0, 4, 8 …, 1, 5, 9 …, so that a
// lane reads neighbors.
template <typename X, typename C>
METAL_FUNC void score_keys(device const X* q, device const C* keys, thread const AttentionTile& tile, uint key,
                           threadgroup float* scores, uint lane) {
  const uint row = matrix_row(lane), column = matrix_column(lane);
  const int used = (tile.rows + 7) / 8;
  metal::simdgroup_float8x8 sums[kRowFragments];
  ulong from[kRowFragments];
  MLXTS_UNROLL for (int i = 0; i < kRowFragments; ++i) {
    sums[i] = metal::simdgroup_float8x8(0.0f);
    from[i] = tile.address(i * 8 + row);
  }
  for (uint d = 0; d < tile.queries.dim; d += 32) {
    metal::simdgroup_float8x8 k[4], x[4];
    MLXTS_UNROLL for (uint e = 0; e < 2; ++e) {
      const uint at = d + 4 * row, count = key + column + e < tile.end ? left(at, tile.queries.dim) : 0;
      const float4 v = load_some(keys + ulong(key + column + e) * tile.queries.dim + at, count);
      MLXTS_UNROLL for (int j = 0; j < 4; ++j) k[j].thread_elements()[e] = v[j];
    }
    MLXTS_UNROLL for (int i = 0; i < kRowFragments; ++i) {
      if (i >= used) continue;
      MLXTS_UNROLL for (uint e = 0; e < 2; ++e) {
        const uint at = d + 4 * (column + e), count = i * 8 + row < tile.rows ? left(at, tile.queries.dim) : 0;
        const float4 v = load_some(q + from[i] + at, count);
        MLXTS_UNROLL for (int j = 0; j < 4; ++j) x[j].thread_elements()[e] = v[j];
      }
      MLXTS_UNROLL for (int j = 0; j < 4; ++j) metal::simdgroup_multiply_accumulate(sums[i], x[j], k[j], sums[i]);
    }
  }
  MLXTS_UNROLL for (int i = 0; i < kRowFragments; ++i) if (i < used) MLXTS_UNROLL for (uint e = 0; e < 2; ++e)
      scores[(i * 8 + row) * kScoreStride + column + e] = sums[i].thread_elements()[e];
}

// The scores of a row become exp(scale · score − maximum), and 0 behind the first `seen` keys. Returns the factor for
// the row's earlier sums.
METAL_FUNC float softmax_row(threadgroup float* scores, uint seen, float scale, thread float& maximum,
                             thread float& denominator, uint lane) {
  const float a = lane < seen ? scores[lane] * scale : -INFINITY;
  const float b = lane + kSimd < seen ? scores[lane + kSimd] * scale : -INFINITY;
  const float now = metal::max(maximum, metal::simd_max(metal::max(a, b)));
  // Where the maximum is −∞, any base gives exp(−∞) = 0.
  const float base = now == -INFINITY ? 0.0f : now;
  const float factor = metal::precise::exp(maximum - base);
  const float first = metal::precise::exp(a - base), second = metal::precise::exp(b - base);
  scores[lane] = first;
  scores[lane + kSimd] = second;
  maximum = now;
  denominator = denominator * factor + metal::simd_sum(first + second);
  return factor;
}

// Adds the weighted values of a block. Keys that all rows see are multiplied as fragments, with zeros for values beyond
// them. Of the other keys a row takes only those that it sees, one by one: in a fragment, 0 · NaN would be NaN.
template <typename C>
METAL_FUNC void add_values(device const C* values, threadgroup const float* weights, thread const AttentionTile& tile,
                           uint block, uint column, thread AttentionState& state, uint lane, uint simdgroup) {
  const uint row = matrix_row(lane), from = matrix_column(lane), dim = tile.queries.dim;
  const int used = (tile.rows + 7) / 8, wide = strips(dim, column);
  const uint all = metal::min(kBlockKeys, left(block, tile.limit(0)));
  const uint some = metal::min(kBlockKeys, left(block, tile.end));
  uint columns[kStrips];
  MLXTS_UNROLL for (int s = 0; s < kStrips; ++s) columns[s] = strip_column(dim, column, s, lane, simdgroup);
  for (uint t = 0; t < all; t += 8) {
    metal::simdgroup_float8x8 v[2 * kStrips], w;
    MLXTS_UNROLL for (int s = 0; s < kStrips; ++s) {
      if (s >= wide) continue;
      const float4 x =
          load_some(values + ulong(block + t + row) * dim + columns[s], t + row < all ? left(columns[s], dim) : 0);
      v[2 * s].thread_elements() = float2(x.x, x.y);
      v[2 * s + 1].thread_elements() = float2(x.z, x.w);
    }
    MLXTS_UNROLL for (int i = 0; i < kRowFragments; ++i) {
      if (i >= used) continue;
      threadgroup const float* at = weights + (i * 8 + row) * kScoreStride + t + from;
      w.thread_elements() = float2(at[0], at[1]);
      MLXTS_UNROLL for (int s = 0; s < 2 * kStrips; ++s) if (s < 2 * wide)
          metal::simdgroup_multiply_accumulate(state.sums[i][s], w, v[s], state.sums[i][s]);
    }
  }
  uint limits[kRowFragments];
  MLXTS_UNROLL for (int i = 0; i < kRowFragments; ++i) limits[i] = tile.limit(i * 8 + row);
  for (uint t = all; t < some; ++t) MLXTS_UNROLL for (int s = 0; s < kStrips; ++s) {
      if (s >= wide) continue;
      const float4 x = load_some(values + ulong(block + t) * dim + columns[s], left(columns[s], dim));
      MLXTS_UNROLL for (int i = 0; i < kRowFragments; ++i) {
        if (block + t >= limits[i]) continue;
        const float w = weights[(i * 8 + row) * kScoreStride + t];
        thread float2& a = state.sums[i][2 * s].thread_elements();
        thread float2& b = state.sums[i][2 * s + 1].thread_elements();
        a = metal::fma(float2(w), float2(x.x, x.y), a);
        b = metal::fma(float2(w), float2(x.z, x.w), b);
      }
    }
}

// A pass over all keys for the columns from `column` on. `next`: the array of scores to be filled, 0 or 1.
template <typename X, typename C>
METAL_FUNC void attend(device const X* q, device const C* keys, device const C* values,
                       thread const AttentionTile& tile, uint column, SdpaPiecesScratch scratch, thread uint& next,
                       thread AttentionState& state, uint lane, uint simdgroup) {
  const int used = (tile.rows + 7) / 8;
  MLXTS_UNROLL for (int i = 0; i < kRowFragments; ++i) {
    state.maximum[i] = -INFINITY;
    state.denominator[i] = 0.0f;
    MLXTS_UNROLL for (int s = 0; s < 2 * kStrips; ++s) state.sums[i][s] = metal::simdgroup_float8x8(0.0f);
  }
  const bool idle = strip_column(tile.queries.dim, column, 0, 0, simdgroup) >= tile.queries.dim;
  for (uint block = tile.begin; block < tile.end; block += kBlockKeys) {
    threadgroup float* scores = next ? scratch.scores1 : scratch.scores0;
    next ^= 1;
    const uint key = simdgroup * 8;
    if (block + key < tile.end) score_keys(q, keys, tile, block + key, scores + key, lane);
    metal::threadgroup_barrier(metal::mem_flags::mem_threadgroup);
    MLXTS_UNROLL for (int i = 0; i < kRowFragments; ++i) {
      if (i >= used) continue;
      const uint row = i * 8 + simdgroup;
      const float factor = softmax_row(scores + row * kScoreStride, left(block, tile.limit(row)), tile.scale,
                                       state.maximum[i], state.denominator[i], lane);
      if (lane == 0) scratch.factors[row] = factor;
    }
    metal::threadgroup_barrier(metal::mem_flags::mem_threadgroup);
    if (idle) continue;
    MLXTS_UNROLL for (int i = 0; i < kRowFragments; ++i) {
      if (i >= used) continue;
      const float factor = scratch.factors[i * 8 + matrix_row(lane)];
      MLXTS_UNROLL for (int s = 0; s < 2 * kStrips; ++s) state.sums[i][s].thread_elements() *= factor;
    }
    add_values(values, scores, tile, block, column, state, lane, simdgroup);
  }
}

// The maximum, denominator and sums of each row of a tile, over the keys of a piece.
template <typename X, typename C>
METAL_FUNC void attend_piece(device const X* q, device const C* keys, device const C* values,
                             thread const AttentionTile& tile, device float* to, SdpaPiecesScratch scratch, uint lane,
                             uint simdgroup) {
  const uint dim = tile.queries.dim;
  AttentionState state;
  uint next = 0;
  for (uint column = 0; column < dim; column += SDPA_PIECES_TILE_COLUMNS) {
    attend(q, keys, values, tile, column, scratch, next, state, lane, simdgroup);
    MLXTS_UNROLL for (int i = 0; i < kRowFragments; ++i) {
      const uint row = i * 8 + matrix_row(lane);
      if (row >= tile.rows) continue;
      device float* sums = to + ulong(row) * partial_size(dim) + SDPA_PIECES_SOFTMAX_SIZE;
      MLXTS_UNROLL for (int s = 0; s < kStrips; ++s) {
        const uint at = strip_column(dim, column, s, lane, simdgroup);
        if (s < int(strips(dim, column))) store_some(sums + at, strip_sums(state, i, s), left(at, dim));
      }
    }
  }
  MLXTS_UNROLL for (int i = 0; i < kRowFragments; ++i) {
    const uint row = i * 8 + simdgroup;
    if (lane > 0 || row >= tile.rows) continue;
    device float* softmax = to + ulong(row) * partial_size(dim);
    softmax[0] = state.maximum[i];
    softmax[1] = state.denominator[i];
  }
}

}  // namespace mlxts
