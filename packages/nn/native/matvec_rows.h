// Products of a few rows of x with rows of a weight, which streams from memory once, four rows (or two) at a time,
// while x, widened to f32 or bf16 as it is, stays in cache.
#pragma once
#include <utility>

#include "matrix_microkernel.h"
#include "matrix_rows.h"
#include "row_order.h"

namespace mlxts {

// The most rows of x in one pass, and the rows of the weight that keep their sums in registers with m of them. Those
// of bf16 that the processor multiplies need no registers for widened halves.
inline constexpr int kMaxPassRows = 6;
template <typename E>
constexpr int pass_rows() {
  return std::is_same_v<E, bf16> ? 6 : kTileVectors == 4 ? 5 : 4;
}
constexpr int block_rows(int m) { return kTileVectors == 4 || m <= 2 ? 4 : 2; }

// What rows of x are kept as: bf16 where the processor multiplies bf16 by bf16, else float in the order in which rows
// of W are loaded.
template <typename X, typename W>
using KeptRow = std::conditional_t<kDotsBf16<X, W>, bf16, float>;

// A row of k elements of x as dot_range takes it, `padded` elements long: a multiple of 2 · kLanes.
template <typename W, typename X>
void keep_row(const X* x, size_t k, size_t padded, KeptRow<X, W>* to) {
  if constexpr (std::is_same_v<KeptRow<X, W>, bf16>) {
    memcpy(to, x, k * sizeof(X));
    memset(to + k, 0, (padded - k) * sizeof(X));
  } else {
    to_load_order<W>(x, k, to);
  }
}

// m such rows, `padded` elements apart.
template <typename W, typename X>
void keep_rows(const X* x, size_t m, size_t k, size_t padded, KeptRow<X, W>* to) {
  for (size_t i = 0; i < m; ++i) keep_row<W>(x + i * k, k, padded, to + i * padded);
}

// sums[r][m] = w[r] · x[m] for R rows of w and M rows of x.
template <typename W, typename E, int R, int M>
__attribute__((noinline)) void dot_rows(const W* w, size_t stride, const E* x, size_t xStride, size_t depth,
                                        float (*sums)[kMaxPassRows]) {
  constexpr bool kBf16 = std::is_same_v<E, bf16>;
  // With one row of x the two vectors of a step get sums of their own: chains enough to hide the latency.
  constexpr int kChains = M == 1 && !kBf16 ? 2 : 1;
  vf32 sum[R][M][kChains] = {};
  // Each step takes 2 · kLanes elements of every row; those of row r of w lie at from(r).
  const auto step = [&](size_t k, auto from) __attribute__((always_inline)) {
    if constexpr (kBf16) {
      vu32 weight[R];
      MLXTS_UNROLL
      for (int r = 0; r < R; ++r) weight[r] = load_bf16x2(from(r));
      MLXTS_UNROLL
      for (int m = 0; m < M; ++m) {
        const vu32 row = load_bf16x2(x + m * xStride + k);
        MLXTS_UNROLL
        for (int r = 0; r < R; ++r) sum[r][m][0] = dot_bf16x2(sum[r][m][0], weight[r], row);
      }
    } else {
      // The side with fewer rows stays in registers.
      vf32 a[R], b[R], first[M], second[M];
      const auto load_row = [&](int r) __attribute__((always_inline)) { load_two(from(r), a[r], b[r]); };
      const auto load_x = [&](int m) __attribute__((always_inline)) {
        first[m] = in_register(load(x + m * xStride + k));
        second[m] = in_register(load(x + m * xStride + k + kLanes));
      };
      const auto add = [&](int r, int m) __attribute__((always_inline)) {
        sum[r][m][0] = fma(a[r], first[m], sum[r][m][0]);
        sum[r][m][kChains - 1] = fma(b[r], second[m], sum[r][m][kChains - 1]);
      };
      if constexpr (M < R) {
        MLXTS_UNROLL
        for (int m = 0; m < M; ++m) load_x(m);
        MLXTS_UNROLL
        for (int r = 0; r < R; ++r) {
          load_row(r);
          MLXTS_UNROLL
          for (int m = 0; m < M; ++m) add(r, m);
        }
      } else {
        MLXTS_UNROLL
        for (int r = 0; r < R; ++r) load_row(r);
        MLXTS_UNROLL
        for (int m = 0; m < M; ++m) {
          load_x(m);
          MLXTS_UNROLL
          for (int r = 0; r < R; ++r) add(r, m);
        }
      }
    }
  };
  size_t k = 0;
  for (; k + 2 * kLanes <= depth; k += 2 * kLanes)
    step(k, [&](int r) __attribute__((always_inline)) {
      const W* from = w + r * stride + k;
      __builtin_prefetch(reinterpret_cast<const char*>(from) + kRowsAhead, 0, kRowsLocality);
      return from;
    });
  if (k < depth) [[unlikely]] {
    W padded[R][2 * kLanes] = {};
    for (int r = 0; r < R; ++r) memcpy(padded[r], w + r * stride + k, (depth - k) * sizeof(W));
    step(k, [&](int r) { return padded[r]; });
  }
  MLXTS_UNROLL
  for (int r = 0; r < R; ++r) {
    MLXTS_UNROLL
    for (int m = 0; m < M; ++m) {
      if constexpr (kChains == 2)
        sums[r][m] = reduce_add(sum[r][m][0] + sum[r][m][1]);
      else
        sums[r][m] = reduce_add(sum[r][m][0]);
    }
  }
}

template <typename W, typename E>
using Dot = void (*)(const W*, size_t, const E*, size_t, size_t, float (*)[kMaxPassRows]);

// dot_rows for 1 … pass_rows rows of x, of blocks of the weight's rows or of single rows.
template <typename W, typename E, bool kSingle, int... M>
constexpr Dot<W, E> choose_dot(int m, std::integer_sequence<int, M...>) {
  constexpr Dot<W, E> all[] = {dot_rows < W, E, kSingle ? 1 : block_rows(M + 1), M + 1 > ...};
  return all[m - 1];
}

// The sums of some rows of the weight, n + r · apart for r < rows, with rows first … first + count − 1 of x.
struct DotSums {
  size_t n, apart, rows;
  int first, count;
  float (*sums)[kMaxPassRows];
};

// Where products go, which have n columns: those of row i of x to row order.at(i) of `first`.
struct DotOutputs {
  void* first;
  size_t n;
  RowOrder order;
  void (*add_bias)(const void* bias, const DotSums&);
  const void* bias;  // null: there is none

  // Rounds sums to O.
  template <typename O>
  MLXTS_INLINE void store(const DotSums& s) const {
    for (int i = 0; i < s.count; ++i) {
      O* to = static_cast<O*>(first) + order.at(s.first + i) * n + s.n;
      for (size_t r = 0; r < s.rows; ++r) to[r * s.apart] = from_f32<O>(s.sums[r][i]);
    }
  }
};

// Rows begin … end − 1 of the weight by m kept rows of x. Blocks take their rows from equal parts of the range, so that
// each row of a block is a stream of its own through memory.
template <typename W, typename E, typename O>
void dot_range(const W* weight, size_t k, size_t begin, size_t end, const E* x, size_t xStride, int m,
               const DotOutputs& out) {
  using Passes = std::make_integer_sequence<int, pass_rows<E>()>;
  const int passes = (m + pass_rows<E>() - 1) / pass_rows<E>(), most = (m + passes - 1) / passes;
  const size_t block = block_rows(most), part = (end - begin) / block, rest = begin + part * block;
  const Dot<W, E> of_block = choose_dot<W, E, false>(most, Passes{}), of_row = choose_dot<W, E, true>(most, Passes{});
  float sums[4][kMaxPassRows];
  // `part` blocks, and the rows from `rest` on by themselves.
  for (size_t i = 0; i < part + (end - rest); ++i) {
    const bool whole = i < part;
    const size_t rows = whole ? block : 1, n = whole ? begin + i : rest + i - part, apart = whole ? part : 0;
    for (int next = 0; next < m; next += most) {
      // All passes are of one size: the last may repeat a row.
      const int first = next < m - most ? next : m - most;
      (whole ? of_block : of_row)(weight + n * k, apart * k, x + first * xStride, xStride, k, sums);
      const DotSums done{n, apart, rows, first, most, sums};
      if (out.bias) out.add_bias(out.bias, done);
      out.store<O>(done);
    }
  }
}

template <typename W, typename E>
using DotRange = decltype(dot_range<W, E, float>)*;

// All kernels share these, which are compiled with matvec.cpp.
#define MLXTS_DOT_RANGE(W, E, O) \
  template void dot_range<W, E, O>(const W*, size_t, size_t, size_t, const E*, size_t, int, const DotOutputs&)
#define MLXTS_DOT_RANGES(kind, W, E) \
  kind MLXTS_DOT_RANGE(W, E, float); \
  kind MLXTS_DOT_RANGE(W, E, f16);   \
  kind MLXTS_DOT_RANGE(W, E, bf16)
MLXTS_DOT_RANGES(extern, float, float);
MLXTS_DOT_RANGES(extern, f16, float);
MLXTS_DOT_RANGES(extern, bf16, float);
#if MLXTS_FAST_BF16_DOT
MLXTS_DOT_RANGES(extern, bf16, bf16);
#endif

}  // namespace mlxts
