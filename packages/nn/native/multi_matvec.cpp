// One threadgroup: groupColumns rows of one of the weights against all rows of x.
#include "cpu_kernel.h"
#include "matvec_rows.h"
#include "multi_matvec.params.h"
#include "product_variants.h"

using namespace mlxts;

namespace {

struct Part {
  uint32_t weight, out, n;
};

template <typename X, typename W>
void multi_matvec(const Launch& l, DotRange<W, KeptRow<X, W>> dots) {
  const auto& p = l.args<MultiMatvecParams>();
  using E = KeptRow<X, W>;
  const X* x = l.buffer<const X>(MULTI_MATVEC_X);
  E* rows = reinterpret_cast<E*>(scratch_of(l, p).x);  // [m][width]
  keep_rows<W>(x, p.m, p.k, p.width, rows);
  const Part parts[] = {{MULTI_MATVEC_A, MULTI_MATVEC_OUT_A, p.nA},
                        {MULTI_MATVEC_B, MULTI_MATVEC_OUT_B, p.nB},
                        {MULTI_MATVEC_C, MULTI_MATVEC_OUT_C, p.nC},
                        {MULTI_MATVEC_D, MULTI_MATVEC_OUT_D, p.nD}};
  size_t first = 0;  // the part's first threadgroup
  for (const auto& [weight, out, n] : parts) {
    const size_t groups = (n + p.groupColumns - 1) / p.groupColumns;
    const size_t from = l.begin > first ? l.begin : first, to = l.end < first + groups ? l.end : first + groups;
    if (from < to) {
      const size_t begin = (from - first) * p.groupColumns, end = (to - first) * p.groupColumns;
      dots(l.buffer<const W>(weight), p.k, begin, end < n ? end : n, rows, p.width, int(p.m),
           DotOutputs{l.buffer<void>(out), n, {}, nullptr, nullptr});
    }
    first += groups;
  }
}

}  // namespace

#define MULTI_MATVEC(x, w, o, X, W, O) \
  MLXTS_KERNEL_OF_LEFT(multi_matvec_##x##_##w##_##o, X, W, multi_matvec<L, W>(launch, dot_range<W, KeptRow<L, W>, O>))
MLXTS_PRODUCT_VARIANTS(MULTI_MATVEC)
