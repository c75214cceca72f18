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

// Lane i: the sum of the lanes of v[i], for as many vectors as a vector has lanes: of each two lanes half a vector
// apart, then of each two a quarter apart, and so on. Overwrites v.
#if defined(__AVX2__) && !defined(__AVX512F__)
MLXTS_INLINE vf32 reduce_add_all(vf32 (&v)[kLanes]) {
  __m256 halves[4], quarters[2];
  MLXTS_UNROLL
  for (int i = 0; i < 4; ++i) {
    const __m256 a = reinterpret_cast<__m256>(v[i]), b = reinterpret_cast<__m256>(v[i + 4]);
    halves[i] = _mm256_add_ps(_mm256_permute2f128_ps(a, b, 0x20), _mm256_permute2f128_ps(a, b, 0x31));
  }
  MLXTS_UNROLL
  for (int i = 0; i < 2; ++i) {
    const __m256 a = halves[2 * i], b = halves[2 * i + 1];
    quarters[i] = _mm256_add_ps(_mm256_shuffle_ps(a, b, 0x44), _mm256_shuffle_ps(a, b, 0xee));
  }
  return reinterpret_cast<vf32>(_mm256_add_ps(_mm256_shuffle_ps(quarters[0], quarters[1], 0x88),
                                              _mm256_shuffle_ps(quarters[0], quarters[1], 0xdd)));
}
#else
template <int kHalf = kLanes / 2>
MLXTS_INLINE vf32 reduce_add_all(vf32 (&v)[kLanes]) {
  MLXTS_UNROLL
  for (int i = 0; i < kHalf; ++i) v[i] = interleave_low(v[i], v[i + kHalf]) + interleave_high(v[i], v[i + kHalf]);
  if constexpr (kHalf > 1)
    return reduce_add_all<kHalf / 2>(v);
  else
    return v[0];
}
#endif

}  // namespace mlxts
