// The online softmax of query rows: block by block of keys, with a running maximum and denominator for each row.
#pragma once
#include <float.h>

#include "matrix_dot.h"

namespace mlxts {

inline constexpr size_t kBlockKeys = 64;  // keys that meet the query rows at a time
// The most rows in one call, in whole vectors.
inline constexpr int kSoftmaxRows = kLanes > 8 ? kLanes : 8;

// Of each query row.
struct Softmax {
  float* maxima;
  float* denominators;

  void clear(int row) const {
    maxima[row] = -INFINITY;
    denominators[row] = 0;
  }

  // A row of the result: its sums over its denominator; zeros where no key was seen.
  template <typename O>
  void store_row(int row, bool none, const float* sums, size_t columns, O* to) const {
    const vf32 inverse = splat(none ? 0.0f : 1 / denominators[row]);
    for_lanes(
        columns, [&](size_t i) { store(to + i, none ? vf32{} : load(sums + i) * inverse); },
        [&](size_t i, int n) { store_partial(to + i, none ? vf32{} : load_partial(sums + i, n) * inverse, n); });
  }
};

// 2^x for weights that are rounded to bf16: right to 18 bits. NaN stays NaN.
MLXTS_INLINE vf32 exp2_for_dot(vf32 x) {
#if defined(__AVX512F__)
  x = reinterpret_cast<vf32>(_mm512_max_ps(reinterpret_cast<__m512>(splat(-200.0f)), reinterpret_cast<__m512>(x)));
  const __m512 whole = _mm512_roundscale_ps(reinterpret_cast<__m512>(x), _MM_FROUND_TO_NEAREST_INT);
  const vf32 r = x - reinterpret_cast<vf32>(whole);
  vf32 p = splat(0x1.3997d4p-7f);
  p = fma(p, r, splat(0x1.ca1440p-5f));
  p = fma(p, r, splat(0x1.ec06dap-3f));
  p = fma(p, r, splat(0x1.62e0dcp-1f));
  p = fma(p, r, splat(0x1.ffffe8p-1f));
  return reinterpret_cast<vf32>(_mm512_scalef_ps(reinterpret_cast<__m512>(p), whole));
#else
  return exp(x * splat(0.693147181f));
#endif
}

// For the rows `first` … `first + rows − 1`, at most kSoftmaxRows, with scores `stride` apart: weights of the first
// counts[r] scores of row r become exp(scale · (score − maximum)), followed by zeros up to the next whole vector, and
// factors[r] is the factor for the row's earlier sums. Scores from counts[r] on are not used. `weights` are the scores
// themselves, or of bf16 for products. The rows' reductions overlap.
template <typename W>
MLXTS_INLINE void softmax_rows(float* scores, size_t stride, int first, int rows, const int* counts, float scale,
                               Softmax softmax, float (&factors)[kSoftmaxRows], W* weights) {
  constexpr bool kDot = !std::is_same_v<W, float>;
  scale = scale < FLT_MIN ? FLT_MIN : scale;  // 0 · −∞ is no score
  const vi32 lane = lane_index();
  const vf32 low = splat(-INFINITY);
  float* maxima = softmax.maxima + first;
  float* denominators = softmax.denominators + first;
  float bases[kSoftmaxRows];
  for (int r = 0; r < rows; ++r) {
    float* row = scores + r * stride;
    vf32 top = low;
    int i = 0;
    for (; i + kLanes <= counts[r]; i += kLanes) top = max(top, load(row + i));
    if (i < counts[r]) {
      const vf32 x = select(lane < splat_i32(counts[r] - i), load(row + i), low);
      top = max(top, x);
      store(row + i, x);
    }
    const float largest = reduce_max(top), before = maxima[r];
    const float now = largest > before ? largest : before;
    // Where the maximum is −∞, any base gives exp(−∞) = 0.
    bases[r] = now == -INFINITY ? 0 : now;
    factors[r] = (before - bases[r]) * scale;
    maxima[r] = now;
  }
  for (int r = rows; r < kSoftmaxRows; ++r) factors[r] = 0;
  for (int r = 0; r < kSoftmaxRows; r += kLanes) store(factors + r, exp(load(factors + r)));
  const vf32 factor = splat(kDot ? scale * 1.44269504f : scale);
  for (int r = 0; r < rows; ++r) {
    const float* row = scores + r * stride;
    vf32 sum = {};
    for (int i = 0; i < counts[r]; i += kLanes) {
      const vf32 x = (load(row + i) - splat(bases[r])) * factor;
      const vf32 weight = kDot ? exp2_for_dot(x) : exp(x);
      sum = sum + weight;
      if constexpr (kDot)
        store_for_dot(weights + r * stride + i, weight);
      else
        store(weights + r * stride + i, weight);
    }
    denominators[r] = denominators[r] * factors[r] + reduce_add(sum);
  }
}

}  // namespace mlxts
