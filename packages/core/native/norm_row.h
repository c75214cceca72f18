// What the norms share on a CPU. A chain of ops and the op that fuses it run the same functions in the same order, and
// round at the same places: their bits are equal.
#pragma once
#include "cpu_kernel.h"
#include "simd.h"

namespace mlxts {

// body(row) for each row of a launch: a threadgroup has some whole rows.
template <typename P, typename Body>
MLXTS_INLINE void for_rows(const Launch& l, const P& p, Body body) {
  const uint64_t last = l.end == l.threadgroups[0] ? p.rows : l.end * p.rowsPerThreadgroup;
  for (uint64_t row = l.begin * p.rowsPerThreadgroup; row < last; ++row) body(row);
}

// Stores what is a T already: of bf16 the upper half of each lane, without rounding it again.
template <typename T>
MLXTS_INLINE void store_exact(T* to, vf32 v) {
  if constexpr (std::is_same_v<T, bf16>) {
    const vu16 bits = narrow_u32(reinterpret_cast<vu32>(v) >> 16);
    memcpy(to, &bits, sizeof bits);
  } else {
    store(to, v);
  }
}

// How a vector's elements are read and written: all of them, or the first n at the end of a row.
struct Whole {
  template <typename T>
  MLXTS_INLINE vf32 load(const T* from) const {
    return mlxts::load(from);
  }
  template <typename T>
  MLXTS_INLINE void store(T* to, vf32 v) const {
    mlxts::store(to, v);
  }
  template <typename T>
  MLXTS_INLINE void store_exact(T* to, vf32 v) const {
    mlxts::store_exact(to, v);
  }
};
struct Part {
  int n;
  template <typename T>
  MLXTS_INLINE vf32 load(const T* from) const {
    return load_partial(from, n);
  }
  template <typename T>
  MLXTS_INLINE void store(T* to, vf32 v) const {
    store_partial(to, v, n);
  }
  template <typename T>
  MLXTS_INLINE void store_exact(T* to, vf32 v) const {
    store_partial(to, v, n);
  }
};

// body(i, lanes) over a row of n elements; `lanes` is a Whole or a Part.
template <typename Body>
MLXTS_INLINE void for_elements(size_t n, Body body) {
  for_lanes(n, [&](size_t i) { body(i, Whole()); }, [&](size_t i, int count) { body(i, Part{count}); });
}

// Σ value(i, lanes)², in the order of sum_of_squares.
template <typename Value>
MLXTS_INLINE float sum_of_squares_of(size_t n, Value value) {
  vf32 sum[4] = {};
  const auto add = [&](int chain, vf32 v) { sum[chain] = fma(v, v, sum[chain]); };
  size_t i = 0;
  for (; i + 4 * kLanes <= n; i += 4 * kLanes)
    for (int j = 0; j < 4; ++j) add(j, value(i + j * kLanes, Whole()));
  for (; i + kLanes <= n; i += kLanes) add(0, value(i, Whole()));
  if (i < n) add(1, value(i, Part{int(n - i)}));
  return reduce_add((sum[0] + sum[1]) + (sum[2] + sum[3]));
}

// v as a store and a load of T give it. For f32 it keeps the compiler from contracting what made v with what uses it.
template <typename T>
MLXTS_INLINE vf32 as_stored(vf32 v) {
  if constexpr (!std::is_same_v<T, float>) return round_to<T>(v);
  return in_register(v);
}

// 1 / √(Σx²/D + eps).
template <typename P>
MLXTS_INLINE vf32 inverse_rms(float squares, const P& p) {
  return splat(1.0f / std::sqrt(squares / float(p.dim) + p.eps));
}

// The norm of one row's elements, before it is stored: x · inverse · (w + offset).
template <typename T>
struct RowNorm {
  vf32 inverse, offset;
  bool roundBeforeWeight;

  MLXTS_INLINE vf32 normed(vf32 x) const {
    const vf32 v = x * inverse;
    return roundBeforeWeight ? round_to<T>(v) : v;
  }
  MLXTS_INLINE vf32 operator()(vf32 x, vf32 w) const { return normed(x) * (w + offset); }
};
template <typename T, typename P>
MLXTS_INLINE RowNorm<T> row_norm(float squares, const P& p) {
  return {inverse_rms(squares, p), splat(p.weightOffset), p.roundBeforeWeight != 0};
}

}  // namespace mlxts
