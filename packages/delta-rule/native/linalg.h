// Small dense products and transposes that the kernels of the delta rule share.
#pragma once
#include "simd.h"

namespace mlxts {

typedef float vf32x4 __attribute__((vector_size(16)));

MLXTS_INLINE vf32x4 load4(const float* p) {
  vf32x4 v;
  memcpy(&v, p, sizeof v);
  return v;
}
MLXTS_INLINE void store4(float* p, vf32x4 v) { memcpy(p, &v, sizeof v); }

// Rows become columns, in registers; moves bits only.
MLXTS_INLINE void transpose4(vf32x4& a, vf32x4& b, vf32x4& c, vf32x4& d) {
  const vf32x4 ab_low = __builtin_shufflevector(a, b, 0, 4, 1, 5), ab_high = __builtin_shufflevector(a, b, 2, 6, 3, 7);
  const vf32x4 cd_low = __builtin_shufflevector(c, d, 0, 4, 1, 5), cd_high = __builtin_shufflevector(c, d, 2, 6, 3, 7);
  a = __builtin_shufflevector(ab_low, cd_low, 0, 1, 4, 5);
  b = __builtin_shufflevector(ab_low, cd_low, 2, 3, 6, 7);
  c = __builtin_shufflevector(ab_high, cd_high, 0, 1, 4, 5);
  d = __builtin_shufflevector(ab_high, cd_high, 2, 3, 6, 7);
}

// to[c][r] = from[r][c] for rows × columns of 4-byte elements.
inline void transpose(const float* from, size_t from_stride, size_t rows, size_t columns, float* to, size_t to_stride) {
  size_t r = 0;
  for (; r + 4 <= rows; r += 4) {
    const float* row = from + r * from_stride;
    size_t c = 0;
    for (; c + 4 <= columns; c += 4) {
      vf32x4 v[4];
      for (int i = 0; i < 4; ++i) v[i] = load4(row + i * from_stride + c);
      transpose4(v[0], v[1], v[2], v[3]);
      for (int i = 0; i < 4; ++i) store4(to + (c + i) * to_stride + r, v[i]);
    }
    for (; c < columns; ++c)
      for (int i = 0; i < 4; ++i) to[c * to_stride + r + i] = row[i * from_stride + c];
  }
  for (; r < rows; ++r)
    for (size_t c = 0; c < columns; ++c) to[c * to_stride + r] = from[r * from_stride + c];
}

// Lane sums of four vectors.
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
  transpose4(parts[0], parts[1], parts[2], parts[3]);
  return (parts[0] + parts[1]) + (parts[2] + parts[3]);
}

// A row of n elements widened to f32.
template <typename T>
MLXTS_INLINE void widen_row(float* to, const T* from, size_t n) {
  for_lanes(
      n, [&](size_t i) { store(to + i, load(from + i)); },
      [&](size_t i, int m) { store_partial(to + i, load_partial(from + i, m), m); });
}

// A row of n f32 elements rounded to T.
template <typename T>
MLXTS_INLINE void narrow_row(T* to, const float* from, size_t n) {
  for_lanes(
      n, [&](size_t i) { store(to + i, load(from + i)); },
      [&](size_t i, int m) { store_partial(to + i, load_partial(from + i, m), m); });
}

MLXTS_INLINE size_t round_up(size_t n, size_t unit) { return (n + unit - 1) / unit * unit; }

}  // namespace mlxts
