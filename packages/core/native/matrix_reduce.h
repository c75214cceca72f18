// Sums over the lanes of several vectors at once.
#pragma once
#include "matrix_transpose.h"

namespace mlxts {

// Lane i: the sum of the lanes of v[i].
MLXTS_INLINE vf32x4 reduce_add4(const vf32* v) {
  vf32x4 parts[4];
  for (int i = 0; i < 4; ++i) {
#if defined(__AVX512F__)
    const __m512 x = reinterpret_cast<__m512>(v[i]);
    const __m256 half = _mm512_castps512_ps256(x) + _mm512_extractf32x8_ps(x, 1);
    parts[i] = reinterpret_cast<vf32x4>(_mm256_castps256_ps128(half) + _mm256_extractf128_ps(half, 1));
#elif defined(__AVX2__)
    const __m256 x = reinterpret_cast<__m256>(v[i]);
    parts[i] = reinterpret_cast<vf32x4>(_mm256_castps256_ps128(x) + _mm256_extractf128_ps(x, 1));
#else
    static_assert(kLanes == 4);
    memcpy(&parts[i], &v[i], sizeof parts[i]);
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
