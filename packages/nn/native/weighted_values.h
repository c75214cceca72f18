// Sums of weighted rows of a cache, which are read in place. The loads of some rows at a time go through their columns side
// by side: a processor's own prefetcher follows each load, and would follow one that goes down the columns astray. Weights
// of bf16 meet the values of two rows at once; of them the sums lie in their own order, else in the load order of the
// values (matrix_rows.h).
#pragma once
#include "matrix_pack.h"
#include "matrix_rows.h"
#include "online_softmax.h"

namespace mlxts {

// Asks for the place `ahead` bytes behind 2 · kLanes elements.
template <typename C>
MLXTS_INLINE void prefetch(const C* from, intptr_t ahead) {
  for (size_t line = 0; line < 2 * kLanes * sizeof(C); line += 64)
    __builtin_prefetch(reinterpret_cast<const char*>(from) + ahead + line);
}

// Weights of a query: those of a block of keys.
inline constexpr size_t kWeightStride = kBlockKeys;

// sum[i] += Σ_t weights[i][t] · rows[t] for Q queries, R rows of values and two vectors of columns from d on, or the first n
// columns of them.
template <int Q, int R, bool kWhole, typename C>
MLXTS_INLINE void add_step(const float* weights, const C* const (&rows)[R], size_t d, int n, RegisterTile<Q, 2>& sum) {
  MLXTS_UNROLL
  for (int t = 0; t < R; ++t) {
    vf32 value[2];
    if constexpr (kWhole)
      load_two(rows[t] + d, value[0], value[1]);
    else
      load_two_partial(rows[t] + d, n, value[0], value[1]);
    sum.add(weights + t, kWeightStride, value);
  }
}
// The same in products of bf16. The last of an odd number of rows has a partner of zeros.
template <int Q, int R, bool kWhole>
MLXTS_INLINE void add_step(const bf16* weights, const bf16* const (&rows)[R], size_t d, int n,
                           RegisterTile<Q, 2>& sum) {
  const auto row = [&](int t) {
    return kWhole ? load_bf16x2(rows[t] + d) : load_bf16x2_partial(rows[t] + d, n);
  };
  MLXTS_UNROLL
  for (int t = 0; t < R; t += 2) {
    vu32 pairs[2];
    interleave_bf16(row(t), t + 1 < R ? row(t + 1) : vu32{}, pairs[0], pairs[1]);
    sum.add(weights + t, kWeightStride, pairs);
  }
}

// sums[i] = factors[i] · sums[i] + Σ_t weights[i][t] · values[t] for Q queries and R rows of `columns` values. What lies
// `ahead` bytes behind them is prefetched.
template <int Q, int R, typename L, typename C>
MLXTS_INLINE void add_rows(const L* weights, const C* values, size_t columns, intptr_t ahead, const float* factors,
                           float* sums, size_t sum_stride) {
  const C* rows[R];
  for (int t = 0; t < R; ++t) rows[t] = values + t * columns;
  const auto step = [&]<bool kWhole>(size_t d, std::bool_constant<kWhole>) {
    RegisterTile<Q, 2> sum;
    sum.each([&](size_t r, size_t j, vf32& v) { v = load(sums + r * sum_stride + d + j) * splat(factors[r]); });
    add_step<Q, R, kWhole>(weights, rows, d, int(columns - d), sum);
    sum.each([&](size_t r, size_t j, vf32 v) { store(sums + r * sum_stride + d + j, v); });
  };
  size_t d = 0;
  for (; d + 2 * kLanes <= columns; d += 2 * kLanes) {
    MLXTS_UNROLL
    for (int t = 0; t < R; ++t) prefetch(rows[t], ptrdiff_t(d * sizeof(C)) + ahead);
    step(d, std::true_type());
  }
  if (d < columns) step(d, std::false_type());
}
// The same for `count` rows.
template <int Q, typename L, typename C>
__attribute__((noinline)) void add_weighted(const L* weights, const C* values, size_t columns, int count,
                                            intptr_t ahead, const float* factors, float* sums, size_t sum_stride) {
  constexpr int kRows = 8, kFew = sizeof(L) == 2 ? 2 : 1;
  // Sums are padded to whole vectors.
  for (size_t r = 0; r < Q && count == 0; ++r)
    for (size_t d = 0; d < columns; d += kLanes) {
      float* sum = sums + r * sum_stride + d;
      store(sum, load(sum) * splat(factors[r]));
    }
  int t = 0;
  const auto add = [&]<int R>(std::integral_constant<int, R>) {
    add_rows<Q, R>(weights + t, values + t * columns, columns, ahead, t == 0 ? factors : kKeep, sums, sum_stride);
    t += R;
  };
  while (count - t >= kRows) add(std::integral_constant<int, kRows>());
  while (count - t >= kFew) add(std::integral_constant<int, kFew>());
  if (t < count) add(std::integral_constant<int, 1>());
}

}  // namespace mlxts
