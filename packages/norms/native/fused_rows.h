// What the fused norms share on a CPU, beside core's norm_row.h.
#pragma once
#include "norm_row.h"

namespace mlxts {

// Asks for a vector of a row that the next loop is the first to use. The loops over a row are so short that what
// processors notice by themselves comes late, most of all for rows that are only written.
template <typename T>
MLXTS_INLINE void ask_for(const T* at) {
  __builtin_prefetch(at, 1);
}

// Σx², and asks for the same elements of other rows.
template <typename T, typename... Rows>
MLXTS_INLINE float sum_of_squares_asking(const T* x, size_t dim, Rows... rows) {
  return sum_of_squares_of(dim, [&](size_t i, auto lanes) {
    (ask_for(rows + i), ...);
    return lanes.load(x + i);
  });
}

// Weights of T or of f32.
template <typename T>
struct RowWeights {
  const void* data;  // [dim]
  bool f32;

  // body(weights), a pointer to what they are: loops inside of it do not ask again for each vector.
  template <typename Body>
  MLXTS_INLINE auto typed(Body body) const {
    return f32 ? body(static_cast<const float*>(data)) : body(static_cast<const T*>(data));
  }
};

// Stores base + norm(x) · w, each step rounded to T, and gives its sum of squares; asks for row `next`.
template <typename T>
MLXTS_INLINE float add_norm(const T* x, RowNorm<T> norm, RowWeights<T> weights, const T* base, T* to, const T* next,
                            size_t dim) {
  return weights.typed([&](auto weight) {
    return sum_of_squares_of(dim, [&](size_t i, auto lanes) {
      ask_for(next + i);
      const vf32 normed = as_stored<T>(norm(lanes.load(x + i), lanes.load(weight + i)));
      const vf32 sum = as_stored<T>(lanes.load(base + i) + normed);
      lanes.store_exact(to + i, sum);
      return sum;
    });
  });
}

// One norm with three weights, each output in a loop of its own: the nearest cache has no room for all of them at once.
template <typename T>
struct ThreeOutputs {
  RowWeights<T> weights[3];
  T* out[3];  // [dim] each

  // `after` is the row that is read next.
  MLXTS_INLINE void store(const T* x, RowNorm<T> norm, size_t dim, const T* after) const {
    for (int j = 0; j < 3; ++j)
      weights[j].typed([&, to = out[j], next = j < 2 ? out[j + 1] : after](auto weight) {
        for_elements(dim, [&](size_t i, auto lanes) {
          ask_for(next + i);
          lanes.store(to + i, norm(lanes.load(x + i), lanes.load(weight + i)));
        });
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
  MLXTS_INLINE void compute(const T* x, float squares, const P& p, const T* after) const {
    const auto norm = row_norm<T>(add_norm(x, row_norm<T>(squares, p), weight2, attn, m, residual, p.dim), p);
    if (vectorScale)
      store_hidden(norm, p.dim, after, [&](size_t i, auto lanes) { return lanes.load(scale + i); });
    else
      store_hidden(norm, p.dim, after, [&, one = splat(*scale)](size_t, auto) { return one; });
  }

  template <typename Scale>
  MLXTS_INLINE void store_hidden(RowNorm<T> norm, size_t dim, const T* after, Scale scale_at) const {
    weight3.typed([&](auto weight) {
      for_elements(dim, [&](size_t i, auto lanes) {
        ask_for(after + i);
        const vf32 normed = as_stored<T>(norm(lanes.load(m + i), lanes.load(weight + i)));
        const vf32 sum = as_stored<T>(lanes.load(residual + i) + normed);
        lanes.store(hidden + i, sum * scale_at(i, lanes));
      });
    });
  }
};

}  // namespace mlxts
