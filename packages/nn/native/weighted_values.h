// Sums of weighted rows of a cache, which are read in place. The loads of some rows at a time go through their columns side
// by side: a processor's own prefetcher follows each load, and one that goes down a column leads it astray. Weights of bf16
// meet the values of two rows at once; their sums lie in the order of columns, others in the load order of the values
// (matrix_rows.h).
#pragma once
#include "matrix_pack.h"
#include "matrix_rows.h"
#include "online_softmax.h"

namespace mlxts {

// Asks for the place `ahead` bytes behind 2 · kLanes elements; of those that share a line, only the first ones ask.
template <typename C>
MLXTS_INLINE void prefetch(const C* from, intptr_t ahead) {
  constexpr size_t bytes = 2 * kLanes * sizeof(C);
  if (bytes < 64 && uintptr_t(from) % 64 >= bytes) return;
  for (size_t line = 0; line < bytes; line += 64)
    __builtin_prefetch(reinterpret_cast<const char*>(from) + ahead + line, 0, kRowsLocality);
}

// Weights of a query: those of a block of keys.
inline constexpr size_t kWeightStride = kBlockKeys;

// Rows that meet a weight at once.
template <typename L>
inline constexpr int kTogether = std::is_same_v<L, bf16> ? 2 : 1;

// sum[i] += weights[i][0] · row for Q queries and V vectors of columns; with a `tail`, for its columns alone.
template <int Q, int V, typename C>
MLXTS_INLINE void add_together(const float* weights, const C* row, size_t, bool, int tail, RegisterTile<Q, V>& sum) {
  vf32 value[V];
  MLXTS_UNROLL
  for (int v = 0; v < V; v += 2)
    if (tail == 0)
      load_two(row + v * kLanes, value[v], value[v + 1]);
    else
      load_two_partial(row, tail, value[v], value[v + 1]);
  sum.add(weights, kWeightStride, value);
}
// The same of `two` rows, or of one beside zeros, in products of bf16.
template <int Q, int V>
MLXTS_INLINE void add_together(const bf16* weights, const bf16* row, size_t stride, bool two, int tail,
                               RegisterTile<Q, V>& sum) {
  const auto values = [&](const bf16* from) {
    return tail == 0 ? load_bf16x2(from) : load_bf16x2_partial(from, tail);
  };
  vu32 pairs[V];
  MLXTS_UNROLL
  for (int v = 0; v < V; v += 2)
    interleave_bf16(values(row + v * kLanes), two ? values(row + stride + v * kLanes) : vu32{}, pairs[v], pairs[v + 1]);
  sum.add(weights, kWeightStride, pairs);
}

// sums[i] = factors[i] · sums[i] + Σ_t weights[i][t] · values[t] for Q queries, V vectors of columns at a time and R rows of
// `columns` values, or `count` where R is 0. What lies `ahead` bytes behind them is prefetched.
template <int Q, int R, int V, typename L, typename C>
MLXTS_INLINE void add_rows(const L* weights, const C* values, size_t columns, int count, intptr_t ahead,
                           const float* factors, float* sums, size_t sum_stride) {
  const auto step = [&]<int N>(size_t d, int tail, std::integral_constant<int, N>) {
    RegisterTile<Q, N> sum;
    sum.each([&](size_t r, size_t j, vf32& v) { v = load(sums + r * sum_stride + d + j) * splat(factors[r]); });
    const auto add = [&](int t, bool two) {
      const C* row = values + t * columns + d;
      for (int i = 0; tail == 0 && i < kTogether<L>; ++i)
        for (int v = 0; v < N; v += 2) prefetch(row + i * columns + v * kLanes, ahead);
      add_together(weights + t, row, columns, two, tail, sum);
    };
    MLXTS_UNROLL
    for (int t = 0; t < R; t += kTogether<L>) add(t, true);
    int t = R;
    for (; t + kTogether<L> <= count; t += kTogether<L>) add(t, true);
    if (t < count) add(t, false);
    sum.each([&](size_t r, size_t j, vf32 v) { store(sums + r * sum_stride + d + j, v); });
  };
  size_t d = 0;
  for (; V > 2 && d + V * kLanes <= columns; d += V * kLanes) step(d, 0, std::integral_constant<int, V>());
  for (; d + 2 * kLanes <= columns; d += 2 * kLanes) step(d, 0, std::integral_constant<int, 2>());
  if (d < columns) step(d, int(columns - d), std::integral_constant<int, 2>());
}

// The same for `count` rows. Narrow vectors take longer than memory: they do not go through the sums more than once.
template <int Q, typename L, typename C>
__attribute__((noinline)) void add_weighted(const L* weights, const C* values, size_t columns, int count,
                                            intptr_t ahead, const float* factors, float* sums, size_t sum_stride) {
  constexpr int kRows = 8;
  int t = 0;
  for (; kLanes == 16 && t + kRows <= count; t += kRows, factors = kKeep)
    add_rows<Q, kRows, 2>(weights + t, values + t * columns, columns, 0, ahead, factors, sums, sum_stride);
  if (t == 0 || t < count)
    add_rows<Q, 0, 4>(weights + t, values + t * columns, columns, count - t, ahead, factors, sums, sum_stride);
}

}  // namespace mlxts
