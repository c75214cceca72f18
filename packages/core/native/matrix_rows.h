// Rows of a matrix read in place by dot products, two vectors of f32 at a time, in the order that costs least: of bf16
// the first vector has the even elements and the second the odd ones (a shift and a mask), of other dtypes the first
// half and the second. The other side of the product is stored in the same order.
#pragma once
#include "matrix_dot.h"
#include "matrix_transpose.h"

namespace mlxts {

// Whether rows that are read side by side are fetched into the second cache: on x64 with narrow vectors. The nearest
// cache waits for few lines at a time (24 on Zen 4, which then reads 10 GB/s, and 20 by way of the second).
#if defined(__x86_64__)
inline constexpr bool kRowsToSecondCache = kLanes < 16;
#else
inline constexpr bool kRowsToSecondCache = false;
#endif
// The locality of such rows for __builtin_prefetch, and how far ahead long ones are fetched: they outrun the hardware's
// prefetcher at every page.
inline constexpr int kRowsLocality = kRowsToSecondCache ? 2 : 3;
inline constexpr size_t kRowsAhead = kRowsToSecondCache ? 4096 : 2048;

// 2 · kLanes elements.
template <typename W>
MLXTS_INLINE void load_two(const W* p, vf32& a, vf32& b) {
  if constexpr (std::is_same_v<W, bf16>) {
    const vu32 both = load_bf16x2(p);
    a = widen_first(both);
    b = widen_second(both);
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

// x in f32, in the order in which rows of W are loaded, padded with zeros to a multiple of 2 · kLanes.
template <typename W, typename X>
MLXTS_INLINE void to_load_order(const X* x, size_t n, float* to) {
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

// The same for products of bf16, which take rows of bf16 as they lie: x rounded to bf16.
template <typename W, typename X>
MLXTS_INLINE void to_load_order(const X* x, size_t n, bf16* to) {
  convert_row(x, n, to);
  memset(to + n, 0, (round_up(n, 2 * kLanes) - n) * sizeof(bf16));
}

// The way back: n elements of x, which is in the order of rows of W, in their own order.
template <typename W>
MLXTS_INLINE void from_load_order(const float* x, size_t n, float* to) {
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

// Rows of x and of W in a tile of dot products, which has as many sums as a vector has lanes: reduce_add_all makes
// them.
inline constexpr int kDotLefts = kLanes >= 8 ? 4 : 2, kDotRows = kLanes / kDotLefts;

// sums[i · Rows + j] += x[i] · rows[j] over `columns` columns. x is in load order, padded; `ahead` is called with the
// place of each whole step in each row before it is read.
template <int Lefts, int Rows, typename W, typename Ahead>
MLXTS_INLINE void add_dots(const float* const (&x)[Lefts], const W* const (&rows)[Rows], size_t columns,
                           vf32 (&sums)[kLanes], Ahead ahead) {
  static_assert(Lefts * Rows == kLanes);
  const auto step = [&](size_t i, auto get) {
    vf32 a[Rows], b[Rows];
    MLXTS_UNROLL
    for (int j = 0; j < Rows; ++j) get(rows[j] + i, a[j], b[j]);
    MLXTS_UNROLL
    for (int m = 0; m < Lefts; ++m) {
      const vf32 first = load(x[m] + i), second = load(x[m] + i + kLanes);
      MLXTS_UNROLL
      for (int j = 0; j < Rows; ++j) {
        sums[m * Rows + j] = fma(a[j], first, sums[m * Rows + j]);
        sums[m * Rows + j] = fma(b[j], second, sums[m * Rows + j]);
      }
    }
  };
  size_t i = 0;
  for (; i + 2 * kLanes <= columns; i += 2 * kLanes)
    step(i, [&](const W* from, vf32& a, vf32& b) {
      ahead(from);
      load_two(from, a, b);
    });
  if (i < columns) step(i, [&](const W* from, vf32& a, vf32& b) { load_two_partial(from, int(columns - i), a, b); });
}
// The same in products of bf16.
template <int Lefts, int Rows, typename Ahead>
MLXTS_INLINE void add_dots(const bf16* const (&x)[Lefts], const bf16* const (&rows)[Rows], size_t columns,
                           vf32 (&sums)[kLanes], Ahead ahead) {
  static_assert(Lefts * Rows == kLanes);
  const auto step = [&](size_t i, auto get) {
    vu32 row[Rows];
    MLXTS_UNROLL
    for (int j = 0; j < Rows; ++j) row[j] = get(rows[j] + i);
    MLXTS_UNROLL
    for (int m = 0; m < Lefts; ++m) {
      const vu32 left = load_bf16x2(x[m] + i);
      MLXTS_UNROLL
      for (int j = 0; j < Rows; ++j) sums[m * Rows + j] = dot_bf16x2(sums[m * Rows + j], left, row[j]);
    }
  };
  size_t i = 0;
  for (; i + 2 * kLanes <= columns; i += 2 * kLanes)
    step(i, [&](const bf16* from) {
      ahead(from);
      return load_bf16x2(from);
    });
  if (i < columns) step(i, [&](const bf16* from) { return load_bf16x2_partial(from, int(columns - i)); });
}
template <int Lefts, int Rows, typename X, typename W>
MLXTS_INLINE void add_dots(const X* const (&x)[Lefts], const W* const (&rows)[Rows], size_t columns,
                           vf32 (&sums)[kLanes]) {
  add_dots(x, rows, columns, sums, [](const W*) {});
}

}  // namespace mlxts
