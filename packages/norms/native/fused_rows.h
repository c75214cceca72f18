// What the fused norms share on a CPU, beside row.h.
#pragma once
#include "row.h"

namespace mlxts {

// Weights of T or of f32.
template <typename T>
struct RowWeights {
  const void* data;  // [dim]
  bool f32;

  template <typename Lanes>
  MLXTS_INLINE vf32 load(size_t i, Lanes lanes) const {
    return f32 ? lanes.load(static_cast<const float*>(data) + i) : lanes.load(static_cast<const T*>(data) + i);
  }
};

// Stores base + norm(x) · w, each step rounded to T, and gives its sum of squares.
template <typename T>
MLXTS_INLINE float add_norm(const T* x, RowNorm<T> norm, RowWeights<T> weights, const T* base, T* to, size_t dim) {
  return sum_of_squares_of(dim, [&](size_t i, auto lanes) {
    const vf32 normed = as_stored<T>(norm(lanes.load(x + i), weights.load(i, lanes)));
    const vf32 sum = as_stored<T>(lanes.load(base + i) + normed);
    lanes.store_exact(to + i, sum);
    return sum;
  });
}

// One norm with three weights.
template <typename T>
struct ThreeOutputs {
  RowWeights<T> weights[3];
  T* out[3];  // [dim] each

  MLXTS_INLINE void store(const T* x, RowNorm<T> norm, size_t dim) const {
    for_elements(dim, [&](size_t i, auto lanes) {
      const vf32 normed = norm.normed(lanes.load(x + i));
      MLXTS_UNROLL
      for (int j = 0; j < 3; ++j) lanes.store(out[j] + i, normed * (weights[j].load(i, lanes) + norm.offset));
    });
  }
};

// m = attn + norm(x) · weight2 and hidden = (residual + norm(m) · weight3) · scale, of one row.
template <typename T>
struct EndOfLayer {
  RowWeights<T> weight2, weight3;
  const T *attn, *residual;  // [dim]
  const float* scale;        // [dim], or one
  bool vectorScale;
  T *m, *hidden;  // [dim]

  template <typename P>
  MLXTS_INLINE void compute(const T* x, float squares, const P& p) const {
    const auto norm = row_norm<T>(add_norm(x, row_norm<T>(squares, p), weight2, attn, m, p.dim), p);
    for_elements(p.dim, [&](size_t i, auto lanes) {
      const vf32 normed = as_stored<T>(norm(lanes.load(m + i), weight3.load(i, lanes)));
      const vf32 sum = as_stored<T>(lanes.load(residual + i) + normed);
      lanes.store(hidden + i, sum * (vectorScale ? lanes.load(scale + i) : splat(*scale)));
    });
  }
};

}  // namespace mlxts
