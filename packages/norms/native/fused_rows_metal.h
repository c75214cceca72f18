// What the fused norms share on a GPU, beside core's metal_norm_row.h. Where a first result is not stored, each pass computes it
// again: threadgroup memory holds one float for each simdgroup and sum, whatever the length of a row.
#pragma once
#include "metal_norm_row.h"

namespace mlxts {

// Weights of T or of f32.
template <typename T>
struct RowWeights {
  device const T* data;
  bool f32;
  METAL_FUNC float4 operator()(uint i, uint count) const {
    return f32 ? load_some((device const float*)data + i, count) : load_some(data + i, count);
  }
};

// base + norm(x) · w, each step rounded to T; stored on the way, if at all.
template <typename T, typename X>
struct NormedSum {
  X x;
  RowNorm<T> norm;
  RowWeights<T> weights;
  device const T* base;
  device T* to;
  bool stored;

  METAL_FUNC float4 operator()(uint i, uint count) const {
    const float4 normed = round4<T>(norm(x(i, count), weights(i, count)));
    const float4 sum = round4<T>(load_some(base + i, count) + normed);
    if (stored) store_some(to + i, sum, count);
    return sum;
  }
};

// The same in a later pass, by the thread that has made it before.
template <typename T, typename X>
struct SumAgain {
  NormedSum<T, X> sum;
  METAL_FUNC float4 operator()(uint i, uint count) const {
    return sum.stored ? load_some(sum.to + i, count) : sum(i, count);
  }
};

// One norm with three weights.
template <typename T>
struct ThreeOutputs {
  RowWeights<T> weights[3];
  device T* out[3];

  template <typename X>
  METAL_FUNC void store(X x, RowNorm<T> norm, uint dim, RowThread t) const {
    for (uint i = first_element(t); i < dim; i = next_element(i, t)) {
      const uint n = elements_at(i, dim);
      const float4 normed = norm.normed(x(i, n));
      for (uint j = 0; j < 3; ++j) store_some(out[j] + i, normed * (weights[j](i, n) + norm.offset), n);
    }
  }
};

// m = attn + norm(x) · weight2 and hidden = (residual + norm(m) · weight3) · scale, of one row. The second sum has
// threadgroup memory of its own: a simdgroup may begin it while another one still reads the first.
template <typename T>
struct EndOfLayer {
  RowWeights<T> weight2, weight3;
  device const T *attn, *residual;
  device const float* scale;
  bool vectorScale;
  device T *m, *hidden;
  bool stored;

  template <typename X, typename P>
  METAL_FUNC void compute(X x, threadgroup float* partial, threadgroup float* second, constant P& p,
                          RowThread t) const {
    const RowNorm<T> first = row_norm<T>(squares_of(x, p.dim, t), partial, p, t);
    const NormedSum<T, X> sum = {x, first, weight2, attn, m, stored};
    const RowNorm<T> norm = row_norm<T>(squares_of(sum, p.dim, t), second, p, t);
    const SumAgain<T, X> again = {sum};
    for (uint i = first_element(t); i < p.dim; i = next_element(i, t)) {
      const uint n = elements_at(i, p.dim);
      const float4 normed = round4<T>(norm(again(i, n), weight3(i, n)));
      const float4 total = round4<T>(load_some(residual + i, n) + normed);
      store_some(hidden + i, total * (vectorScale ? load_some(scale + i, n) : float4(scale[0])), n);
    }
  }
};

}  // namespace mlxts
