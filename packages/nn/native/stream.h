// Reading rows of 16- or 32-bit floats two vectors at a time, in the order that costs least. For bf16 the first vector
// has the even elements and the second the odd ones (a shift and a mask); the other side of the product is stored in
// the same order.
#pragma once
#include "tile.h"

namespace mlxts {

// 2 · kLanes elements.
template <typename W>
MLXTS_INLINE void load_two(const W* p, vf32& a, vf32& b) {
  if constexpr (std::is_same_v<W, bf16>) {
    const vf32 pairs = load_pairs(p);
    a = first_of(pairs);
    b = second_of(pairs);
  } else {
    a = load(p);
    b = load(p + kLanes);
  }
}

// The first n < 2 · kLanes elements; the missing ones are 0.
template <typename W>
MLXTS_INLINE void load_two_partial(const W* p, int n, vf32& a, vf32& b) {
  W some[2 * kLanes] = {};
#if defined(__AVX512BW__)
  if constexpr (sizeof(W) == 2) {
    const __m512i v = _mm512_maskz_loadu_epi16(__mmask32((1ull << n) - 1), p);
    memcpy(some, &v, sizeof v);
    load_two(some, a, b);
    return;
  }
#endif
  for (int i = 0; i < n; ++i) some[i] = p[i];
  load_two(some, a, b);
}

// The even and the odd elements of a and b side by side.
MLXTS_INLINE void deinterleave(vf32& a, vf32& b) {
#if defined(__AVX512F__)
  const vf32 even = __builtin_shufflevector(a, b, 0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30);
  b = __builtin_shufflevector(a, b, 1, 3, 5, 7, 9, 11, 13, 15, 17, 19, 21, 23, 25, 27, 29, 31);
#elif defined(__AVX2__)
  const vf32 even = __builtin_shufflevector(a, b, 0, 2, 4, 6, 8, 10, 12, 14);
  b = __builtin_shufflevector(a, b, 1, 3, 5, 7, 9, 11, 13, 15);
#else
  const vf32 even = __builtin_shufflevector(a, b, 0, 2, 4, 6);
  b = __builtin_shufflevector(a, b, 1, 3, 5, 7);
#endif
  a = even;
}

// x in f32, in the order in which rows of W are read, padded with zeros to a multiple of 2 · kLanes.
template <typename W, typename X>
MLXTS_INLINE void widen_like(const X* x, size_t n, float* to) {
  for (size_t i = 0; i < n; i += 2 * kLanes) {
    vf32 a, b;
    if (n - i >= 2 * kLanes)
      load_two(x + i, a, b);
    else
      load_two_partial(x + i, int(n - i), a, b);
    if constexpr (std::is_same_v<W, bf16> && !std::is_same_v<X, bf16>) deinterleave(a, b);
    if constexpr (std::is_same_v<X, bf16> && !std::is_same_v<W, bf16>) {
      const vf32 low = interleave_low(a, b);
      b = interleave_high(a, b);
      a = low;
    }
    store(to + i, a);
    store(to + i + kLanes, b);
  }
}

// The way back: n elements of x, which is in the order of rows of W, in their own order.
template <typename W>
MLXTS_INLINE void unwiden_like(const float* x, size_t n, float* to) {
  for (size_t i = 0; i < n; i += 2 * kLanes) {
    vf32 a = load(x + i), b = load(x + i + kLanes);
    if constexpr (std::is_same_v<W, bf16>) {
      const vf32 low = interleave_low(a, b);
      b = interleave_high(a, b);
      a = low;
    }
    float both[2 * kLanes];
    store(both, a);
    store(both + kLanes, b);
    memcpy(to + i, both, (n - i < 2 * kLanes ? n - i : 2 * kLanes) * sizeof(float));
  }
}

}  // namespace mlxts
