// Sums of weighted rows of a cache, which are read in place. The loads of some rows at a time go through their columns side
// by side: a processor's own prefetcher follows each load, and would follow one that goes down the columns astray. Weights
// of bf16 meet the values of two rows at once; of them the sums lie in their own order, else in the load order of the
// values (matrix_rows.h).
#pragma once
#include "matrix_pack.h"
#include "matrix_rows.h"

namespace mlxts {

// Asks for the place `ahead` bytes behind 2 · kLanes elements that are read now.
template <typename C>
MLXTS_INLINE void prefetch(const C* from, intptr_t ahead) {
  for (size_t line = 0; line < 2 * kLanes * sizeof(C); line += 64)
    __builtin_prefetch(reinterpret_cast<const char*>(from) + ahead + line);
}

// From a row to the next, in elements.
struct WeightedStrides {
  size_t weights, values, sums;
};

// sum[i] += Σ_t weights[i][t] · values[t] for Q queries, R rows and two vectors of columns, or the first n columns of them. What
// lies `ahead` of whole ones is prefetched.
template <int Q, int R, bool kWhole, typename C>
MLXTS_INLINE void add_step(const float* weights, const C* values, WeightedStrides strides, intptr_t ahead,
                           int n, RegisterTile<Q, 2>& sum) {
  MLXTS_UNROLL
  for (int t = 0; t < R; ++t) {
    const C* from = values + t * strides.values;
    vf32 value[2];
    if constexpr (kWhole) {
      prefetch(from, ahead);
      load_two(from, value[0], value[1]);
    } else {
      load_two_partial(from, n, value[0], value[1]);
    }
    sum.add(weights + t, strides.weights, value);
  }
}
// The same in products of bf16. The last of an odd number of rows has a partner of zeros.
template <int Q, int R, bool kWhole>
MLXTS_INLINE void add_step(const bf16* weights, const bf16* values, WeightedStrides strides, intptr_t ahead,
                           int n, RegisterTile<Q, 2>& sum) {
  const auto row = [&](int t) {
    const bf16* from = values + t * strides.values;
    if (kWhole) prefetch(from, ahead);
    return kWhole ? load_bf16x2(from) : load_bf16x2_partial(from, n);
  };
  MLXTS_UNROLL
  for (int t = 0; t < R; t += 2) {
    vu32 pairs[2];
    interleave_bf16(row(t), t + 1 < R ? row(t + 1) : vu32{}, pairs[0], pairs[1]);
    sum.add(weights + t, strides.weights, pairs);
  }
}

// sums[i] = factors[i] · sums[i] + Σ_t weights[i][t] · values[t] for Q queries and R rows of `columns` values.
template <int Q, int R, typename L, typename C>
MLXTS_INLINE void add_rows(const L* weights, const C* values, size_t columns, WeightedStrides strides, intptr_t ahead,
                           const float* factors, float* sums) {
  const auto step = [&]<bool kWhole>(size_t d, std::bool_constant<kWhole>) {
    RegisterTile<Q, 2> sum;
    sum.each([&](size_t r, size_t j, vf32& v) { v = load(sums + r * strides.sums + d + j) * splat(factors[r]); });
    add_step<Q, R, kWhole>(weights, values + d, strides, ahead, int(columns - d), sum);
    sum.each([&](size_t r, size_t j, vf32 v) { store(sums + r * strides.sums + d + j, v); });
  };
  size_t d = 0;
  for (; d + 2 * kLanes <= columns; d += 2 * kLanes)
    step(d, std::true_type());
  if (d < columns) step(d, std::false_type());
}

// The same for `count` rows.
template <int Q, typename L, typename C>
__attribute__((noinline)) void add_weighted(const L* weights, const C* values, size_t columns, int count,
                                            WeightedStrides strides, intptr_t ahead, const float* factors,
                                            float* sums) {
  constexpr int kRows = 8, kFew = sizeof(L) == 2 ? 2 : 1;
  int t = 0;
  const auto add = [&]<int R>(std::integral_constant<int, R>) {
    add_rows<Q, R>(weights + t, values + t * strides.values, columns, strides, ahead, t == 0 ? factors : kKeep,
                           sums);
    t += R;
  };
  if (count == 0) add(std::integral_constant<int, 0>());
  while (count - t >= kRows) add(std::integral_constant<int, kRows>());
  while (count - t >= kFew) add(std::integral_constant<int, kFew>());
  if (t < count) add(std::integral_constant<int, 1>());
}

}  // namespace mlxts
