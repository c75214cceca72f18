// One threadgroup: groupColumns rows of the weight against all rows of x.
#include "cpu_kernel.h"
#include "matvec.params.h"
#include "matvec_rows.h"

using namespace mlxts;

namespace {

// Adds the bias to sums.
template <typename B>
void add_bias(const void* bias, const DotSums& s) {
  for (size_t r = 0; r < s.rows; ++r)
    for (int i = 0; i < s.count; ++i) s.sums[r][i] += to_f32(static_cast<const B*>(bias)[s.n + r * s.apart]);
}

template <typename X, typename W, typename O>
void matvec(const Launch& l) {
  const auto& p = l.args<MatvecParams>();
  const X* x = l.buffer<const X>(MATVEC_X);
  const void* bias = l.buffer<const void>(MATVEC_BIAS);
  O* out = l.buffer<O>(MATVEC_OUT);
  using E = KeptRow<X, W>;
  E* rows = reinterpret_cast<E*>(scratch_of(l, p).x);  // [m][width]
  for (size_t m = 0; m < p.m; ++m) keep_row<W>(x + m * p.k, p.k, p.width, rows + m * p.width);
  const size_t begin = l.begin * p.groupColumns, end = l.end * p.groupColumns < p.n ? l.end * p.groupColumns : p.n;
  const auto add = p.biasF32 ? add_bias<float> : add_bias<X>;
  dot_range(l.buffer<const W>(MATVEC_WEIGHT), p.k, begin, end, rows, p.width, int(p.m), [&](const DotSums& s) {
    if (bias) add(bias, s);
    s.store([&](int i) { return out + i * size_t(p.n); });
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
