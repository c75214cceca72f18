// Sums over the lanes of several vectors at once.
#pragma once
#include "matrix_transpose.h"

namespace mlxts {

// Lane i: the sum of the lanes of v[i].
MLXTS_INLINE vf32x4 reduce_add4(const vf32* v) {
  vf32x4 parts[4];
  MLXTS_UNROLL
  for (int i = 0; i < 4; ++i) {
#if defined(__AVX512F__)
    const auto half = __builtin_shufflevector(v[i], v[i], 0, 1, 2, 3, 4, 5, 6, 7) +
                      __builtin_shufflevector(v[i], v[i], 8, 9, 10, 11, 12, 13, 14, 15);
    parts[i] = __builtin_shufflevector(half, half, 0, 1, 2, 3) + __builtin_shufflevector(half, half, 4, 5, 6, 7);
#elif defined(__AVX2__)
    parts[i] = __builtin_shufflevector(v[i], v[i], 0, 1, 2, 3) + __builtin_shufflevector(v[i], v[i], 4, 5, 6, 7);
#else
    parts[i] = v[i];
#endif
  }
  transpose_blocks4(parts[0], parts[1], parts[2], parts[3]);
  return (parts[0] + parts[1]) + (parts[2] + parts[3]);
}

// Lane i: the sum of the lanes of v[i], for as many vectors as a vector has lanes. Overwrites v.
template <int kHalf = kLanes / 2>
MLXTS_INLINE vf32 reduce_add_all(vf32 (&v)[kLanes]) {
  MLXTS_UNROLL
  for (int i = 0; i < kHalf; ++i) v[i] = interleave_low(v[i], v[i + kHalf]) + interleave_high(v[i], v[i + kHalf]);
  if constexpr (kHalf > 1)
    return reduce_add_all<kHalf / 2>(v);
  else
    return v[0];
}

}  // namespace mlxts
