// Rows of a head's state for the kernels that go token by token: they have them side by side, whatever the tensor's
// layout.
#pragma once
#include "matrix_transpose.h"
#include "simd.h"

#if defined(__aarch64__)
#include <arm_neon.h>
#endif

namespace mlxts {

// The states of a tensor; element [v, k] of a head at v · row_stride + k · column_stride.
struct StateLayout {
  size_t K, V, row_stride, column_stride;
  bool rows_are_whole() const { return column_stride == 1; }
  // Elements before row v0 of a head.
  size_t at(size_t head, size_t v0) const { return head * V * K + v0 * row_stride; }
};

// Block [rows, K] of a state from where the first of its rows begins.
inline void load_rows(const StateLayout& layout, const float* from, size_t rows, float* to) {
  if (layout.rows_are_whole())
    memcpy(to, from, rows * layout.K * sizeof(float));
  else
    transpose(from, layout.column_stride, layout.K, rows, to, layout.K);
}

inline void store_rows(const StateLayout& layout, const float* from, size_t rows, float* to) {
  if (layout.rows_are_whole())
    memcpy(to, from, rows * layout.K * sizeof(float));
  else
    transpose(from, layout.K, rows, layout.K, to, layout.column_stride);
}

inline void store_zeros(const StateLayout& layout, size_t rows, float* to) {
  if (layout.rows_are_whole())
    memset(to, 0, rows * layout.K * sizeof(float));
  else
    for (size_t c = 0; c < layout.K; ++c) memset(to + c * layout.column_stride, 0, rows * sizeof(float));
}

// decay · s + delta · k with the same roundings in every kernel: the compiler may not choose which product it
// contracts.
MLXTS_INLINE vf32 next_state(vf32 s, vf32 decay, vf32 delta, vf32 k) {
  const vf32 decayed = decay * s;
#if defined(__AVX512F__)
  return reinterpret_cast<vf32>(
      _mm512_fmadd_ps(reinterpret_cast<__m512>(delta), reinterpret_cast<__m512>(k), reinterpret_cast<__m512>(decayed)));
#elif defined(__FMA__)
  return reinterpret_cast<vf32>(
      _mm256_fmadd_ps(reinterpret_cast<__m256>(delta), reinterpret_cast<__m256>(k), reinterpret_cast<__m256>(decayed)));
#elif defined(__aarch64__)
  return reinterpret_cast<vf32>(vfmaq_f32(reinterpret_cast<float32x4_t>(decayed), reinterpret_cast<float32x4_t>(delta),
                                          reinterpret_cast<float32x4_t>(k)));
#else
  return delta * k + decayed;
#endif
}

// The decay of a gate; a factor of 0: the gate itself.
MLXTS_INLINE float decay_of(float gate, float factor) { return factor != 0 ? exp(splat(gate * factor))[0] : gate; }

// The decays of n channels.
inline void decays_of(float* to, const float* gates, size_t n, float factor) {
  const auto decays = [&](vf32 g) { return factor != 0 ? exp(g * splat(factor)) : g; };
  for_lanes(
      n, [&](size_t i) { store(to + i, decays(load(gates + i))); },
      [&](size_t i, int m) { store_partial(to + i, decays(load_partial(gates + i, m)), m); });
}

// The delta in the log of a token that changes nothing: next_state(s, 1, kNoDelta, 0) is s, also where s is −0.
inline constexpr float kNoDelta = -0.0f;

}  // namespace mlxts
