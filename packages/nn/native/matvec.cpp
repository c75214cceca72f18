// One threadgroup: groupColumns rows of the weight against all rows of x. The weight streams from memory once, four
// rows (or two) at a time, while x, widened to f32, stays in cache.
#include <utility>

#include "cpu_kernel.h"
#include "matrix_microkernel.h"
#include "matrix_rows.h"
#include "matvec.params.h"

using namespace mlxts;

namespace {

// The most rows of x in one pass, and the rows of the weight that keep their sums in registers with m of them. Those
// of bf16 that the processor multiplies need no registers for widened halves.
constexpr int kMaxRows = 6;
template <typename E>
constexpr int pass_rows() {
  return std::is_same_v<E, bf16> ? 6 : kTileVectors == 4 ? 5 : 4;
}
constexpr int block_rows(int m) { return kTileVectors == 4 || m <= 2 ? 4 : 2; }

// How far ahead each row of the weight is prefetched: rows outrun the hardware's prefetcher at every page.
constexpr size_t kAheadBytes = 2048;

// sums[r][m] = w[r] · x[m] for R rows of w and M rows of x. E: float, x in the order in which rows of W are loaded; or
// bf16, as it is, for the processor's products of bf16.
template <typename W, typename E, int R, int M>
__attribute__((noinline)) void dot_rows(const W* w, size_t stride, const E* x, size_t xStride, size_t depth,
                                        float (*sums)[kMaxRows]) {
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
      vf32 a[R], b[R];
      MLXTS_UNROLL
      for (int r = 0; r < R; ++r) load_two(from(r), a[r], b[r]);
      MLXTS_UNROLL
      for (int m = 0; m < M; ++m) {
        const vf32 first = load(x + m * xStride + k), second = load(x + m * xStride + k + kLanes);
        MLXTS_UNROLL
        for (int r = 0; r < R; ++r) {
          sum[r][m][0] = fma(a[r], first, sum[r][m][0]);
          sum[r][m][kChains - 1] = fma(b[r], second, sum[r][m][kChains - 1]);
        }
      }
    }
  };
  size_t k = 0;
  for (; k + 2 * kLanes <= depth; k += 2 * kLanes)
    step(
        k, [&](int r) __attribute__((always_inline)) {
          const W* from = w + r * stride + k;
          __builtin_prefetch(reinterpret_cast<const char*>(from) + kAheadBytes);
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
    for (int m = 0; m < M; ++m) sums[r][m] = reduce_add(kChains == 2 ? sum[r][m][0] + sum[r][m][1] : sum[r][m][0]);
  }
}

template <typename W, typename E>
using Dot = void (*)(const W*, size_t, const E*, size_t, size_t, float (*)[kMaxRows]);

// dot_rows for 1 … pass_rows rows of x, of blocks of the weight's rows or of single rows.
template <typename W, typename E, bool kSingle, int... M>
constexpr Dot<W, E> choose(int m, std::integer_sequence<int, M...>) {
  constexpr Dot<W, E> all[] = {dot_rows < W, E, kSingle ? 1 : block_rows(M + 1), M + 1 > ...};
  return all[m - 1];
}

// sums[r][i] += bias[n + r · apart]
template <typename B>
void add_bias(const void* bias, size_t n, size_t apart, size_t rows, int count, float (*sums)[kMaxRows]) {
  for (size_t r = 0; r < rows; ++r)
    for (int i = 0; i < count; ++i) sums[r][i] += to_f32(static_cast<const B*>(bias)[n + r * apart]);
}
using AddBias = decltype(&add_bias<float>);

// Rows begin … end − 1 of the weight. Blocks take their rows from equal parts of the range, so that each row of a block
// is a stream of its own through memory.
template <typename W, typename E, typename O>
void dot_range(const Launch& l, size_t begin, size_t end, const E* x, size_t xStride, AddBias add) {
  const auto& p = l.args<MatvecParams>();
  const W* weight = l.buffer<const W>(MATVEC_WEIGHT);
  const void* bias = l.buffer<const void>(MATVEC_BIAS);
  O* out = l.buffer<O>(MATVEC_OUT);
  using Passes = std::make_integer_sequence<int, pass_rows<E>()>;
  const int m = int(p.m), passes = (m + pass_rows<E>() - 1) / pass_rows<E>(), most = (m + passes - 1) / passes;
  const size_t block = block_rows(most), part = (end - begin) / block;
  float sums[4][kMaxRows];
  const auto dot = [&](size_t rows, size_t n, size_t apart) {
    const auto pass = rows == 1 ? choose<W, E, true>(most, Passes{}) : choose<W, E, false>(most, Passes{});
    for (int next = 0; next < m; next += most) {
      // All passes are of one size: the last may repeat a row.
      const int first = next < m - most ? next : m - most;
      pass(weight + n * p.k, apart * p.k, x + first * xStride, xStride, p.k, sums);
      if (bias) add(bias, n, apart, rows, most, sums);
      O* to = out + first * size_t(p.n) + n;
      for (size_t r = 0; r < rows; ++r)
        for (int i = 0; i < most; ++i) to[i * size_t(p.n) + r * apart] = from_f32<O>(sums[r][i]);
    }
  };
  for (size_t i = 0; i < part; ++i) dot(block, begin + i, part);
  for (size_t n = begin + part * block; n < end; ++n) dot(1, n, 0);
}

template <typename X, typename W, typename O>
void matvec(const Launch& l) {
  const auto& p = l.args<MatvecParams>();
  const X* x = l.buffer<const X>(MATVEC_X);
  constexpr bool kBf16 = kHasBf16Dot && std::is_same_v<X, bf16> && std::is_same_v<W, bf16>;
  using E = std::conditional_t<kBf16, bf16, float>;
  const size_t padded = p.width;
  E* rows = reinterpret_cast<E*>(scratch_of(l, p).x);  // [m][padded]
  for (size_t m = 0; m < p.m; ++m) {
    if constexpr (kBf16) {
      memcpy(rows + m * padded, x + m * p.k, p.k * sizeof(X));
      memset(rows + m * padded + p.k, 0, (padded - p.k) * sizeof(X));
    } else {
      to_load_order<W>(x + m * p.k, p.k, rows + m * padded);
    }
  }
  const size_t begin = l.begin * p.groupColumns, end = l.end * p.groupColumns < p.n ? l.end * p.groupColumns : p.n;
  dot_range<W, E, O>(l, begin, end, rows, padded, p.biasF32 ? add_bias<float> : add_bias<X>);
}

}  // namespace

#define MATVEC_OUTPUTS(x, w, X, W)                          \
  MLXTS_KERNEL(matvec_##x##_##w##_f32, matvec<X, W, float>) \
  MLXTS_KERNEL(matvec_##x##_##w##_f16, matvec<X, W, f16>)   \
  MLXTS_KERNEL(matvec_##x##_##w##_bf16, matvec<X, W, bf16>)
#define MATVEC_WEIGHTS(x, X)       \
  MATVEC_OUTPUTS(x, f32, X, float) \
  MATVEC_OUTPUTS(x, f16, X, f16)   \
  MATVEC_OUTPUTS(x, bf16, X, bf16)
MATVEC_WEIGHTS(f32, float)
MATVEC_WEIGHTS(f16, f16)
MATVEC_WEIGHTS(bf16, bf16)
