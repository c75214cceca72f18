// One threadgroup: groupColumns rows of both weights against all rows of x, and the gated unit of their products.
#include "cpu_kernel.h"
#include "matvec_gated.h"
#include "matvec_swiglu.params.h"
#include "product_variants.h"

using namespace mlxts;

namespace {

template <typename X, typename W, typename O>
void matvec_swiglu(const Launch& l, DotRange<W, KeptRow<X, W>> dots) {
  const auto& p = l.args<MatvecSwigluParams>();
  using E = KeptRow<X, W>;
  const X* x = l.buffer<const X>(MATVEC_SWIGLU_X);
  const auto scratch = scratch_of(l, p);
  E* rows = reinterpret_cast<E*>(scratch.x);  // [m][width]
  keep_rows<W>(x, p.m, p.k, p.width, rows);
  O* out = l.buffer<O>(MATVEC_SWIGLU_OUT);
  O* ups = reinterpret_cast<O*>(scratch.ups);  // [m][columns]
  const size_t begin = l.begin * p.groupColumns, end = l.end * p.groupColumns < p.n ? l.end * p.groupColumns : p.n;
  const GatedWeights<W> weights{l.buffer<const W>(MATVEC_SWIGLU_GATE), l.buffer<const W>(MATVEC_SWIGLU_UP), p.n, p.k};
  gated_range(dots, weights, begin, end, rows, p.width, p.m, out, ups, p.upColumns);
}

}  // namespace

#define MATVEC_SWIGLU(x, w, o, X, W, O)                     \
  MLXTS_KERNEL_OF_LEFT(matvec_swiglu_##x##_##w##_##o, X, W, \
                       matvec_swiglu<L, W, O>(launch, dot_range<W, KeptRow<L, W>, O>))
MLXTS_PRODUCT_VARIANTS(MATVEC_SWIGLU)
