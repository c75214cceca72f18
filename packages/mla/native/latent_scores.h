// Scores: dot products of queries with rows of the cache, which are read in place.
#pragma once
#include "matrix_reduce.h"
#include "matrix_rows.h"

namespace mlxts {

// Queries and keys of a tile of dot products.
inline constexpr int kQueries = kDotLefts, kKeys = kDotRows;

// Elements of a part of a query in scratch: `columns`, and zeros up to whole steps of dot products.
MLXTS_INLINE size_t query_width(size_t columns) { return round_up(columns, 2 * kLanes); }

// scores [rows, stride], times `scale`, of `rows` queries with the first `count` rows of latents and rotated keys.
// Tiles at the ends repeat the last row or query.
template <typename Q, typename C>
__attribute__((noinline)) void score_block(const Q* queries, size_t query_stride, int rows, const C* latents,
                                           size_t latent_stride, size_t rank, const C* rotated, size_t rope_stride,
                                           size_t rope, int count, float scale, float* scores, size_t score_stride) {
  for (int t = 0; t < count; t += kKeys) {
    const C *c[kKeys], *k_pe[kKeys];
    for (int j = 0; j < kKeys; ++j) {
      const size_t key = t + j < count ? t + j : count - 1;
      c[j] = latents + key * latent_stride;
      k_pe[j] = rotated + key * rope_stride;
    }
    for (int row = 0; row < rows; row += kQueries) {
      const Q *q[kQueries], *q_pe[kQueries];
      for (int i = 0; i < kQueries; ++i) {
        q[i] = queries + (row + i < rows ? row + i : rows - 1) * query_stride;
        q_pe[i] = q[i] + query_width(rank);
      }
      vf32 sums[kLanes];
      MLXTS_UNROLL
      for (int i = 0; i < kLanes; ++i) sums[i] = vf32{};
      add_dots(q, c, rank, sums);
      add_dots(q_pe, k_pe, rope, sums);
      float tile[kLanes];
      store(tile, reduce_add_all(sums) * splat(scale));
      for (int i = 0; i < kQueries && row + i < rows; ++i)
        memcpy(scores + (row + i) * score_stride + t, tile + i * kKeys, kKeys * sizeof(float));
    }
  }
}

}  // namespace mlxts
