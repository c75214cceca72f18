// One threadgroup: groupColumns rows of the weight against all rows of x. The weight streams from memory once, four
// rows (or two) at a time, while x, widened to f32, stays in cache.
#include "cpu_kernel.h"
#include "matvec.params.h"
#include "stream.h"

using namespace mlxts;

namespace {

constexpr int kMaxRows = 8;

// sums[r][m] = w[r] · x[m] for R rows of w and M rows of x; `ahead`: elements to prefetch ahead of each row.
template <typename W, int R, int M>
__attribute__((noinline)) void dot_rows(const W* w, size_t stride, size_t ahead, const float* x, size_t xStride,
                                        size_t depth, float (*sums)[kMaxRows]) {
  // With one row of x the halves of a vector pair get sums of their own: chains enough to hide the latency.
  constexpr int kChains = M == 1 ? 2 : 1;
  vf32 sum[R][M][kChains] = {};
  const auto step = [&](size_t k, auto get) {
    vf32 a[R], b[R];
#pragma GCC unroll 4
    for (int r = 0; r < R; ++r) get(w + r * stride + k, a[r], b[r]);
#pragma GCC unroll 8
    for (int m = 0; m < M; ++m) {
      const vf32 even = load(x + m * xStride + k), odd = load(x + m * xStride + k + kLanes);
#pragma GCC unroll 4
      for (int r = 0; r < R; ++r) {
        sum[r][m][0] = fma(a[r], even, sum[r][m][0]);
        sum[r][m][kChains - 1] = fma(b[r], odd, sum[r][m][kChains - 1]);
      }
    }
  };
  size_t k = 0;
  for (; k + 2 * kLanes <= depth; k += 2 * kLanes)
    step(k, [&](const W* from, vf32& a, vf32& b) {
      __builtin_prefetch(from + ahead);
      load_two(from, a, b);
    });
  if (k < depth) step(k, [&](const W* from, vf32& a, vf32& b) { load_two_partial(from, int(depth - k), a, b); });
  for (int r = 0; r < R; ++r)
    for (int m = 0; m < M; ++m) sums[r][m] = reduce_add(kChains == 2 ? sum[r][m][0] + sum[r][m][1] : sum[r][m][0]);
}

#if defined(__AVX512F__) || defined(__aarch64__)
constexpr int block_rows(int m) { return m <= 5 ? 4 : 2; }
#else
constexpr int block_rows(int m) { return m <= 2 ? 4 : m <= 4 ? 2 : 1; }
#endif

template <typename W, typename Store>
void dot_all(int m, const W* w, size_t begin, size_t end, const float* x, size_t xStride, size_t depth, Store finish) {
  typedef void (*Dot)(const W*, size_t, size_t, const float*, size_t, size_t, float (*)[kMaxRows]);
  static constexpr Dot blocks[kMaxRows] = {dot_rows<W, block_rows(1), 1>, dot_rows<W, block_rows(2), 2>,
                                           dot_rows<W, block_rows(3), 3>, dot_rows<W, block_rows(4), 4>,
                                           dot_rows<W, block_rows(5), 5>, dot_rows<W, block_rows(6), 6>,
                                           dot_rows<W, block_rows(7), 7>, dot_rows<W, block_rows(8), 8>};
  static constexpr Dot single[kMaxRows] = {dot_rows<W, 1, 1>, dot_rows<W, 1, 2>, dot_rows<W, 1, 3>, dot_rows<W, 1, 4>,
                                           dot_rows<W, 1, 5>, dot_rows<W, 1, 6>, dot_rows<W, 1, 7>, dot_rows<W, 1, 8>};
  const size_t block = block_rows(m);
  // The next block of rows, or as many further as make 8 KiB: rows restart the hardware's prefetcher.
  const size_t rowBytes = block * depth * sizeof(W);
  const size_t ahead = (8192 + rowBytes - 1) / rowBytes * block * depth;
  float sums[4][kMaxRows];
  for (size_t n = begin; n < end;) {
    const size_t some = end - n >= block ? block : 1;
    (some == block ? blocks : single)[m - 1](w + n * depth, depth, ahead, x, xStride, depth, sums);
    for (size_t r = 0; r < some; ++r)
      for (int i = 0; i < m; ++i) finish(n + r, i, sums[r][i]);
    n += some;
  }
}

template <typename X, typename W, typename O>
void matvec(const Launch& l) {
  const auto& p = l.args<MatvecParams>();
  const X* x = l.buffer<const X>(MATVEC_X);
  const void* bias = l.buffer<const void>(MATVEC_BIAS);
  O* out = l.buffer<O>(MATVEC_OUT);
  const size_t padded = (size_t(p.k) + 31) / 32 * 32;
  float* rows = static_cast<float*>(l.scratch);  // [m][padded]
  for (size_t m = 0; m < p.m; ++m) widen_like<W>(x + m * p.k, p.k, rows + m * padded);
  const size_t begin = l.begin * p.groupColumns, end = l.end * p.groupColumns < p.n ? l.end * p.groupColumns : p.n;
  dot_all(int(p.m), l.buffer<const W>(MATVEC_WEIGHT), begin, end, rows, padded, p.k, [&](size_t n, int m, float sum) {
    if (bias) sum += p.biasF32 ? static_cast<const float*>(bias)[n] : to_f32(static_cast<const X*>(bias)[n]);
    out[m * size_t(p.n) + n] = from_f32<O>(sum);
  });
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
