// Scores: dot products of queries with rows of the cache, which are read in place.
#pragma once
#include "matrix_reduce.h"
#include "matrix_rows.h"

namespace mlxts {

// Queries and keys of a tile of dot products.
inline constexpr int kQueries = kDotLefts, kKeys = kDotRows;

// Elements of a part of a query in scratch: `columns`, and zeros up to whole steps of dot products.
MLXTS_INLINE size_t query_width(size_t columns) { return round_up(columns, 2 * kLanes); }

// A part of a query in the order in which it meets keys of C: rounded to bf16 as it lies, or f32 in the load order of
// C.
template <typename C, typename X>
MLXTS_INLINE void load_query(const X* from, size_t columns, bf16* to) {
  convert_row(from, columns, to);
  memset(to + columns, 0, (query_width(columns) - columns) * sizeof(bf16));
}
template <typename C, typename X>
MLXTS_INLINE void load_query(const X* from, size_t columns, float* to) {
  to_load_order<C>(from, columns, to);
}

// sums[i][j] += queries[i] · keys[j] over the `columns` columns of a part, in bf16; of other queries as in matrix_rows.h.
MLXTS_INLINE void add_dots(const bf16* const (&queries)[kQueries], const bf16* const (&keys)[kKeys], size_t columns,
                           vf32 (&sums)[kLanes]) {
  const auto step = [&](size_t d, auto get) {
    vu32 key[kKeys];
    MLXTS_UNROLL
    for (int j = 0; j < kKeys; ++j) key[j] = get(keys[j] + d);
    MLXTS_UNROLL
    for (int i = 0; i < kQueries; ++i) {
      const vu32 query = load_bf16x2(queries[i] + d);
      MLXTS_UNROLL
      for (int j = 0; j < kKeys; ++j) sums[i * kKeys + j] = dot_bf16x2(sums[i * kKeys + j], query, key[j]);
    }
  };
  size_t d = 0;
  for (; d + 2 * kLanes <= columns; d += 2 * kLanes) step(d, [](const bf16* from) { return load_bf16x2(from); });
  if (d < columns) step(d, [&](const bf16* from) { return load_bf16x2_partial(from, int(columns - d)); });
}

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
