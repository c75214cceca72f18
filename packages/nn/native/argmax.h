// The index of a row's first largest element: the first block that has it is known from the largest element of each.
#pragma once
#include "simd.h"

namespace mlxts {

// The largest element that is no NaN; -infinity when there is none.
template <typename T>
MLXTS_INLINE float largest(const T* x, size_t n) {
  vf32 best[4] = {splat(-INFINITY), splat(-INFINITY), splat(-INFINITY), splat(-INFINITY)};
  const auto take = [](vf32 v, vf32 m) { return select(v > m, v, m); };
  size_t i = 0;
  for (; i + 4 * kLanes <= n; i += 4 * kLanes)
    for (int j = 0; j < 4; ++j) best[j] = take(load(x + i + j * kLanes), best[j]);
  for (; i + kLanes <= n; i += kLanes) best[0] = take(load(x + i), best[0]);
  float out = reduce_max(take(take(best[0], best[1]), take(best[2], best[3])));
  for (; i < n; ++i) out = to_f32(x[i]) > out ? to_f32(x[i]) : out;
  return out;
}

template <typename T>
uint32_t first_largest(const T* x, uint32_t n) {
  constexpr uint32_t kBlock = 2048;
  float best = -INFINITY;
  uint32_t at = 0;
  for (uint32_t i = 0; i < n; i += kBlock) {
    const float block = largest(x + i, n - i < kBlock ? n - i : kBlock);
    if (block > best) best = block, at = i;
    if (n - i <= kBlock) break;
  }
  for (uint32_t i = at; i < n; ++i)
    if (to_f32(x[i]) == best) return i;
  return 0;
}

}  // namespace mlxts
