// Attention of a tile of query rows over a range of keys, with online softmax. A block of 64 keys is scored 8 keys to a
// simdgroup; the rows' softmax goes by rows; then each simdgroup adds the values of its own columns. So every key and
// value is read once by a tile, straight from the cache. All sums and factors are floats.
#pragma once
#include "metal_matrix.h"
#include "sdpa.params.h"
#include "sdpa_common.h"

namespace mlxts {

constant constexpr uint kTileKeys = SDPA_TILE_KEYS, kTileSimdgroups = SDPA_SIMDGROUPS, kScoreStride = SDPA_SCORE_STRIDE;
constant constexpr int kRowFragments = SDPA_TILE_ROWS / 8;
// Columns of a simdgroup go by strips of 16, of which a lane has 4 neighbors of a row, in two fragments.
constant constexpr uint kStrip = 16;
constant constexpr int kStrips = SDPA_TILE_COLUMNS / SDPA_SIMDGROUPS / kStrip;

// Whether all lengths are right, and the one of `sequence`; the first wrong one is reported. The first simdgroup reads
// each of them once, for the whole threadgroup.
template <typename P>
METAL_FUNC bool right_length(device const Index* lengths, uint sequence, thread uint& length, constant P& p,
                             device MlxtsFault* fault, uint outOfRange, uint tooFew, threadgroup float* memory,
                             uint index, uint lane) {
  uint wrong = p.batch, found = 0, own = 0;
  for (uint b = lane; b < p.batch && index < kSimd; b += kSimd) {
    const uint at = uint(read_index(lengths, b));  // a negative one is above any capacity
    if (b == sequence) own = at;
    if (wrong == p.batch && (at > p.capacity || (p.causal && at < p.tokens))) wrong = b, found = at;
  }
  const uint first = metal::simd_min(wrong);
  if (wrong == first && wrong < p.batch) report_fault(fault, found > p.capacity ? outOfRange : tooFew, found, wrong);
  const metal::uint2 all =
      threadgroup_first(metal::uint2(first, metal::simd_max(own)), (threadgroup uint*)memory, index);
  length = all.y;
  return all.x == p.batch;
}

// Rows are tokens, and within them the heads that share the key/value head.
struct AttentionTile {
  uint first, rows;
  uint begin, end;  // keys; the last row sees those before `end`
  uint visible;     // keys that token 0 sees, or every token
  uint share, heads, dim;
  bool causal;
  float scale;
  ulong start;  // of token 0 and the first of the heads in q

  METAL_FUNC ulong address(uint row) const {
    return start + (ulong((first + row) / share) * heads + (first + row) % share) * dim;
  }
  METAL_FUNC uint limit(uint row) const {
    return row < rows ? metal::min(end, visible + (causal ? (first + row) / share : 0)) : 0;
  }
};

// The tile of rows from `first` on of a key/value head's `rows`, over keys `begin` to `end` as far as it sees them.
template <typename P>
METAL_FUNC AttentionTile attention_tile(constant P& p, uint length, uint sequence, uint kv_head, uint first, uint begin,
                                        uint end) {
  AttentionTile tile;
  tile.share = p.heads / p.kvHeads;
  tile.heads = p.heads;
  tile.dim = p.dim;
  tile.causal = p.causal;
  tile.scale = p.scale;
  tile.first = first;
  tile.rows = metal::min(p.tokens * tile.share - first, uint(SDPA_TILE_ROWS));
  tile.visible = p.causal ? length - p.tokens + 1 : length;
  tile.begin = begin;
  tile.end = end;
  tile.end = tile.limit(tile.rows - 1);
  tile.start = (ulong(sequence) * p.tokens * p.heads + kv_head * tile.share) * p.dim;
  return tile;
}

// What a simdgroup has of a tile: sums of all rows in its columns, and the softmax of every eighth row.
struct AttentionState {
  metal::simdgroup_float8x8 sums[kRowFragments][2 * kStrips];
  float top[kRowFragments], total[kRowFragments];
};

// Of a simdgroup: strips of columns in a pass from `column` on, and a lane's first column of a strip.
METAL_FUNC uint strips(uint dim, uint column) {
  constexpr uint kAll = kStrip * kTileSimdgroups;
  return (metal::min(dim - column, uint(SDPA_TILE_COLUMNS)) + kAll - 1) / kAll;
}
METAL_FUNC uint strip_column(uint dim, uint column, uint strip, uint lane, uint simdgroup) {
  return column + (simdgroup * strips(dim, column) + strip) * kStrip + 2 * matrix_column(lane);
}

// Four neighboring columns of a lane's row.
METAL_FUNC float4 strip_sums(thread AttentionState& state, int i, int strip) {
  thread const float2& a = state.sums[i][2 * strip].thread_elements();
  thread const float2& b = state.sums[i][2 * strip + 1].thread_elements();
  return float4(a.x, a.y, b.x, b.y);
}

// Scores of 8 keys with all rows. The fragments of 32 columns take them in the order 0, 4, 8 …, 1, 5, 9 …, so that each
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
  for (uint d = 0; d < tile.dim; d += 32) {
    metal::simdgroup_float8x8 k[4], x[4];
    MLXTS_UNROLL for (uint e = 0; e < 2; ++e) {
      const uint at = d + 4 * row, count = key + column + e < tile.end ? left(at, tile.dim) : 0;
      const float4 v = load_some(keys + ulong(key + column + e) * tile.dim + at, count);
      MLXTS_UNROLL for (int j = 0; j < 4; ++j) k[j].thread_elements()[e] = v[j];
    }
    MLXTS_UNROLL for (int i = 0; i < kRowFragments; ++i) {
      if (i >= used) continue;
      MLXTS_UNROLL for (uint e = 0; e < 2; ++e) {
        const uint at = d + 4 * (column + e), count = i * 8 + row < tile.rows ? left(at, tile.dim) : 0;
        const float4 v = load_some(q + from[i] + at, count);
        MLXTS_UNROLL for (int j = 0; j < 4; ++j) x[j].thread_elements()[e] = v[j];
      }
      MLXTS_UNROLL for (int j = 0; j < 4; ++j) metal::simdgroup_multiply_accumulate(sums[i], x[j], k[j], sums[i]);
    }
  }
  MLXTS_UNROLL for (int i = 0; i < kRowFragments; ++i) if (i < used) MLXTS_UNROLL for (uint e = 0; e < 2; ++e)
      scores[(i * 8 + row) * kScoreStride + column + e] = sums[i].thread_elements()[e];
}

// The scores of a row of which `seen` keys are visible become exp(scale · score − max), zeros from there on. Gives what
// earlier sums of the row are to be multiplied by.
METAL_FUNC float softmax_row(threadgroup float* scores, uint seen, float scale, thread float& top, thread float& total,
                             uint lane) {
  const float a = lane < seen ? scores[lane] * scale : -INFINITY;
  const float b = lane + kSimd < seen ? scores[lane + kSimd] * scale : -INFINITY;
  const float now = metal::max(top, metal::simd_max(metal::max(a, b)));
  // With nothing but −∞ so far, any base gives exp(−∞) = 0.
  const float base = now == -INFINITY ? 0.0f : now;
  const float factor = metal::precise::exp(top - base);
  const float first = metal::precise::exp(a - base), second = metal::precise::exp(b - base);
  scores[lane] = first;
  scores[lane + kSimd] = second;
  top = now;
  total = total * factor + metal::simd_sum(first + second);
  return factor;
}

// Adds the weighted values of a block. Keys that all rows see go by fragments, with zeros for the values of others; of
// the rest, a row takes what it sees and nothing else, since 0 · NaN is NaN.
template <typename C>
METAL_FUNC void add_values(device const C* values, threadgroup const float* weights, thread const AttentionTile& tile,
                           uint block, uint column, thread AttentionState& state, uint lane, uint simdgroup) {
  const uint row = matrix_row(lane), from = matrix_column(lane), dim = tile.dim;
  const int used = (tile.rows + 7) / 8, wide = strips(dim, column);
  const uint all = metal::min(kTileKeys, left(block, tile.limit(0)));
  const uint some = metal::min(kTileKeys, left(block, tile.end));
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

// A pass over all keys for the columns from `column` on. `memory` has two blocks of scores, so that one is filled while
// the other is still read, and of each row a factor and the denominator; `next` is the block of scores to be filled.
template <typename X, typename C>
METAL_FUNC void attend(device const X* q, device const C* keys, device const C* values,
                       thread const AttentionTile& tile, uint column, threadgroup float* memory, thread uint& next,
                       thread AttentionState& state, uint lane, uint simdgroup) {
  const int used = (tile.rows + 7) / 8;
  threadgroup float* factors = memory + 2 * used * 8 * kScoreStride;
  threadgroup float* totals = factors + used * 8;
  MLXTS_UNROLL for (int i = 0; i < kRowFragments; ++i) {
    state.top[i] = -INFINITY;
    state.total[i] = 0.0f;
    MLXTS_UNROLL for (int s = 0; s < 2 * kStrips; ++s) state.sums[i][s] = metal::simdgroup_float8x8(0.0f);
  }
  const bool idle = strip_column(tile.dim, column, 0, 0, simdgroup) >= tile.dim;
  for (uint block = tile.begin; block < tile.end; block += kTileKeys) {
    threadgroup float* scores = memory + next * used * 8 * kScoreStride;
    next ^= 1;
    const uint key = simdgroup * 8;
    if (block + key < tile.end) score_keys(q, keys, tile, block + key, scores + key, lane);
    threadgroup_barrier(metal::mem_flags::mem_threadgroup);
    MLXTS_UNROLL for (int i = 0; i < kRowFragments; ++i) {
      if (i >= used) continue;
      const uint row = i * 8 + simdgroup;
      const float factor = softmax_row(scores + row * kScoreStride, left(block, tile.limit(row)), tile.scale,
                                       state.top[i], state.total[i], lane);
      if (lane == 0) {
        factors[row] = factor;
        totals[row] = state.total[i];
      }
    }
    threadgroup_barrier(metal::mem_flags::mem_threadgroup);
    if (idle) continue;
    MLXTS_UNROLL for (int i = 0; i < kRowFragments; ++i) {
      if (i >= used) continue;
      const float factor = factors[i * 8 + matrix_row(lane)];
      MLXTS_UNROLL for (int s = 0; s < 2 * kStrips; ++s) state.sums[i][s].thread_elements() *= factor;
    }
    add_values(values, scores, tile, block, column, state, lane, simdgroup);
  }
}

}  // namespace mlxts
