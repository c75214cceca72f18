// What the norms share: the threads of a threadgroup lie in rows, `threads` of them to a row of the input. Short rows
// have one simdgroup each and need no barrier; a long row has the threadgroup for itself. A thread takes every
// `threads`-th four elements, always the same ones: it alone reads what it has stored.
#pragma once
#include "metal_kernel.h"

// A fused op rounds where its chain of ops stores: what made a number is not contracted with what uses it.
#pragma clang fp contract(off)

namespace mlxts {

struct RowThread {
  uint index, threads;               // of the row
  uint lane, simdgroup, simdgroups;  // simdgroups of the row
  uint row;
};

METAL_FUNC RowThread row_thread(uint3 group, uint3 position, uint3 size, uint lane, uint simdgroup) {
  return {position.x, size.x, lane, simdgroup, size.x / kSimd, group.x * size.y + position.y};
}

METAL_FUNC uint first_element(RowThread t) { return 4 * t.index; }
METAL_FUNC uint next_element(uint i, RowThread t) { return i + 4 * t.threads; }
METAL_FUNC uint elements_at(uint i, uint dim) { return metal::min(4u, dim - i); }

// Stores the first `count` of four adjacent elements.
template <typename T>
METAL_FUNC void store_some(device T* to, float4 v, uint count) {
  if (count >= 4) return store4(to, v);
  for (uint i = 0; i < count; ++i) to[i] = T(v[i]);
}

// The elements of a row: four from `i` on, of which `count` are there and the others 0.
template <typename T>
struct RowElements {
  device const T* row;
  METAL_FUNC float4 operator()(uint i, uint count) const { return load_some(row + i, count); }
};

// Vectors of four elements that a thread asks for before it waits for the first of them.
constant constexpr uint kAhead = 4;

// Elements of a thread: the vector at i, next_element(i, t) and so on, zeros beyond the row.
template <typename Elements>
METAL_FUNC void load_ahead(Elements elements, uint i, uint dim, RowThread t, thread float4 (&v)[kAhead]) {
  MLXTS_UNROLL for (uint u = 0; u < kAhead; ++u) {
    v[u] = i < dim ? elements(i, elements_at(i, dim)) : float4(0.0f);
    i = next_element(i, t);
  }
}
// The same, in a row of whole vectors without a question for each.
template <typename T>
METAL_FUNC void load_ahead(RowElements<T> elements, uint i, uint dim, RowThread t, thread float4 (&v)[kAhead]) {
  if (dim % 4 != 0 || !aligned_to_four(elements.row)) return load_ahead<RowElements<T>>(elements, i, dim, t, v);
  MLXTS_UNROLL for (uint u = 0; u < kAhead; ++u) {
    v[u] = i < dim ? load4_at_once(elements.row + i) : float4(0.0f);
    i = next_element(i, t);
  }
}

// This thread's share of the sum of squares.
template <typename Elements>
METAL_FUNC float squares_of(Elements elements, uint dim, RowThread t) {
  float sum = 0.0f;
  for (uint i = first_element(t); i < dim; i += kAhead * 4 * t.threads) {
    float4 v[kAhead];
    load_ahead(elements, i, dim, t, v);
    MLXTS_UNROLL for (uint u = 0; u < kAhead; ++u) sum += metal::dot(v[u], v[u]);
  }
  return sum;
}
template <typename T>
METAL_FUNC float squares(device const T* x, uint dim, RowThread t) {
  return squares_of(RowElements<T>{x}, dim, t);
}

// The sum over the row's threads. `partial` has a float for each simdgroup; a second sum needs an array of its own.
METAL_FUNC float row_sum(float value, threadgroup float* partial, RowThread t) {
  return threadgroup_sum(value, partial, t.lane, t.simdgroup, t.simdgroups);
}

// 1 / √(Σx²/D + eps), where `share` is this thread's part of the sum.
template <typename P>
METAL_FUNC float inverse_rms(float share, threadgroup float* partial, constant P& p, RowThread t) {
  return 1.0f / metal::precise::sqrt(row_sum(share, partial, t) / float(p.dim) + p.eps);
}

// The norm of one row's elements, before it is stored: x · inverse · (w + offset).
template <typename T>
struct RowNorm {
  float inverse, offset;
  bool round_before_weight;

  METAL_FUNC float4 normed(float4 x) const {
    const float4 v = x * inverse;
    return round_before_weight ? round4<T>(v) : v;
  }
  METAL_FUNC float4 operator()(float4 x, float4 w) const { return normed(x) * (w + offset); }
};
template <typename T, typename P>
METAL_FUNC RowNorm<T> row_norm(float share, threadgroup float* partial, constant P& p, RowThread t) {
  return {inverse_rms(share, partial, p, t), p.weightOffset, p.roundBeforeWeight != 0};
}

// Vectors of a row that a thread has at most where they stay in its registers.
constant constexpr uint kHeld = 4;

// Whether rows of `dim` elements stay in registers: rows of whole vectors, where each begins at a vector.
METAL_FUNC bool is_held(uint dim, RowThread t) { return dim % 4 == 0 && dim <= kHeld * 4 * t.threads; }

// The vectors of this thread in such a row, zeros beyond it.
template <uint Count, typename T>
METAL_FUNC void load_held(device const T* row, uint dim, RowThread t, thread PackedFour<T> (&v)[Count]) {
  MLXTS_UNROLL for (uint u = 0, i = first_element(t); u < Count; ++u, i = next_element(i, t))
    v[u] = i < dim ? PackedFour<T>::load(row + i) : PackedFour<T>::rounded(float4(0.0f));
}
template <uint Count, typename T>
METAL_FUNC void store_held(device T* row, uint dim, RowThread t, thread const PackedFour<T> (&v)[Count]) {
  MLXTS_UNROLL for (uint u = 0, i = first_element(t); u < Count; ++u, i = next_element(i, t))
    if (i < dim) v[u].store(row + i);
}

// A row's elements as a norm reads them: the vectors of this thread from i on, as load_ahead has them, or all of them.
template <typename T>
struct RowVectors {
  device const T* row;
  METAL_FUNC void operator()(uint i, uint dim, RowThread t, thread float4 (&v)[kAhead]) const {
    load_ahead(RowElements<T>{row}, i, dim, t, v);
  }
  METAL_FUNC bool aligned() const { return aligned_to_four(row); }
  template <uint Count>
  METAL_FUNC void held(uint dim, RowThread t, thread PackedFour<T> (&v)[Count]) const {
    load_held(row, dim, t, v);
  }
};

// Stores the norm of a row that `vectors` reads; `row` has the same elements. Weights are asked for before the row is
// there, on NVIDIA's GPUs while the kernels before this one run.
template <uint Count, typename T, typename W, typename Vectors, typename P>
METAL_FUNC void store_held_norm(Vectors vectors, device const W* weight, device T* out, threadgroup float* partial,
                                constant P& p, RowThread t) {
  PackedFour<T> v[Count];
  PackedFour<W> w[Count];
  load_held(weight, p.dim, t, w);
  wait_for_kernels();
  vectors.held(p.dim, t, v);
  float share = 0.0f;
  MLXTS_UNROLL for (uint u = 0; u < Count; ++u) share += metal::dot(v[u].wide(), v[u].wide());
  const RowNorm<T> norm = row_norm<T>(share, partial, p, t);
  MLXTS_UNROLL for (uint u = 0; u < Count; ++u) v[u] = PackedFour<T>::rounded(norm(v[u].wide(), w[u].wide()));
  store_held(out, p.dim, t, v);
}
template <typename T, typename W, typename Vectors, typename P>
METAL_FUNC void store_norm(Vectors vectors, device const T* row, device const W* weight, device T* out,
                           threadgroup float* partial, constant P& p, RowThread t) {
  if (is_held(p.dim, t) && vectors.aligned() && aligned_to_four(weight) && aligned_to_four(out)) {
    if (p.dim <= 2 * 4 * t.threads) return store_held_norm<2, T>(vectors, weight, out, partial, p, t);
    return store_held_norm<kHeld, T>(vectors, weight, out, partial, p, t);
  }
  wait_for_kernels();
  const uint first = first_element(t), step = kAhead * 4 * t.threads;
  float4 v[kAhead], w[kAhead];
  load_ahead(RowElements<W>{weight}, first, p.dim, t, w);
  float share = 0.0f;
  for (uint i = first; i < p.dim; i += step) {
    vectors(i, p.dim, t, v);
    MLXTS_UNROLL for (uint u = 0; u < kAhead; ++u) share += metal::dot(v[u], v[u]);
  }
  const RowNorm<T> norm = row_norm<T>(share, partial, p, t);
  for (uint i = first; i < p.dim; i += step) {
    if (p.dim > step) load_ahead(RowElements<T>{row}, i, p.dim, t, v);
    if (i != first) load_ahead(RowElements<W>{weight}, i, p.dim, t, w);
    MLXTS_UNROLL for (uint u = 0, at = i; u < kAhead; ++u, at = next_element(at, t))
      if (at < p.dim) store_some(out + at, norm(v[u], w[u]), elements_at(at, p.dim));
  }
}

}  // namespace mlxts
