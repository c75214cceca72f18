// One threadgroup: groupColumns rows of the weight against all rows of x.
#include "cpu_kernel.h"
#include "matvec.params.h"
#include "matvec_rows.h"
#include "product_variants.h"

using namespace mlxts;

namespace {

// Adds the bias to sums.
template <typename B>
void add_bias(const void* bias, const DotSums& s) {
  for (size_t r = 0; r < s.rows; ++r)
    for (int i = 0; i < s.count; ++i) s.sums[r][i] += to_f32(static_cast<const B*>(bias)[s.n + r * s.apart]);
}

template <typename X, typename W>
void matvec(const Launch& l, DotRange<W, KeptRow<X, W>> dots) {
  const auto& p = l.args<MatvecParams>();
  const X* x = l.buffer<const X>(MATVEC_X);
  using E = KeptRow<X, W>;
  E* rows = reinterpret_cast<E*>(scratch_of(l, p).x);  // [m][width]
  keep_rows<W>(x, p.m, p.k, p.width, rows);
  const size_t begin = l.begin * p.groupColumns, end = l.end * p.groupColumns < p.n ? l.end * p.groupColumns : p.n;
  const DotOutputs out{l.buffer<void>(MATVEC_OUT),
                       p.n,
                       {},
                       p.biasF32 ? add_bias<float> : add_bias<X>,
                       l.buffer<const void>(MATVEC_BIAS)};
  dots(l.buffer<const W>(MATVEC_WEIGHT), p.k, begin, end, rows, p.width, int(p.m), out);
}

}  // namespace

namespace mlxts {
MLXTS_DOT_RANGES(, float, float);
MLXTS_DOT_RANGES(, f16, float);
MLXTS_DOT_RANGES(, bf16, float);
#if MLXTS_FAST_BF16_DOT
MLXTS_DOT_RANGES(, bf16, bf16);
#endif
}  // namespace mlxts

#define MATVEC(x, w, o, X, W, O) \
  MLXTS_KERNEL_OF_LEFT(matvec_##x##_##w##_##o, X, W, matvec<L, W>(launch, dot_range<W, KeptRow<L, W>, O>))
MLXTS_PRODUCT_VARIANTS(MATVEC)
