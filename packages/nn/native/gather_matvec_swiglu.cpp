// One threadgroup: groupColumns rows of the gate and of the up matrix that a pair has chosen against the pair's rows of
// x, and the gated unit of their products.
#include <algorithm>

#include "gather_matvec_swiglu.params.h"
#include "matvec_gated.h"
#include "product_variants.h"
#include "stacked_weight.h"

using namespace mlxts;

namespace {

template <typename X, typename W, typename O>
int32_t gather_matvec_swiglu(const Launch& l, DotRange<W, KeptRow<X, W>> dots) {
  const auto& p = l.args<GatherMatvecSwigluParams>();
  const GatheredPairs<GatherMatvecSwigluParams> pairs{p, l.indices(GATHER_MATVEC_SWIGLU_RHS_INDICES),
                                                      l.indices(GATHER_MATVEC_SWIGLU_LHS_INDICES)};
  const GatherFaults codes{GATHER_MATVEC_SWIGLU_FAULT_RHS_INDICES, GATHER_MATVEC_SWIGLU_FAULT_LHS_INDICES, 0, 0};
  const size_t n = p.n, k = p.k;
  const StackedWeight gates{n * k, p.matrices, p.gateEnd, l.indices(GATHER_MATVEC_SWIGLU_GATE_STARTS)};
  const StackedWeight ups{n * k, p.matrices, p.upEnd, l.indices(GATHER_MATVEC_SWIGLU_UP_STARTS)};
  if (l.begin == 0 && !(pairs.right(l, codes) && gates.right(l, GATHER_MATVEC_SWIGLU_FAULT_GATE_STARTS) &&
                        ups.right(l, GATHER_MATVEC_SWIGLU_FAULT_UP_STARTS)))
    return 1;
  using E = KeptRow<X, W>;
  const auto scratch = scratch_of(l, p);
  E* rows = reinterpret_cast<E*>(scratch.x);        // [m][width]
  O* products = reinterpret_cast<O*>(scratch.ups);  // [m][columns]
  const size_t groups = l.threadgroups[0], m = p.m;
  size_t kept = ~size_t(0);  // the matrix of x whose rows are kept
  for (uint64_t group = l.begin; group < l.end;) {
    const size_t pair = group / groups, first = group % groups,
                 last = std::min<size_t>(first + (l.end - group), groups);
    group += last - first;
    const size_t matrix = pairs.matrix(pair);  // read once: both products have the same
    if (!gates.holds(matrix) || !ups.holds(matrix)) continue;
    if (const size_t left = pairs.left(pair); left != kept) {
      const X* x = l.buffer<const X>(GATHER_MATVEC_SWIGLU_X) + left * m * k;
      keep_rows<W>(x, m, k, p.width, rows);
      kept = left;
    }
    const GatedWeights<W> weights{l.buffer<const W>(GATHER_MATVEC_SWIGLU_GATE) + gates.begin(matrix),
                                  l.buffer<const W>(GATHER_MATVEC_SWIGLU_UP) + ups.begin(matrix), n, k};
    gated_range(dots, weights, first * p.groupColumns, std::min<size_t>(last * p.groupColumns, n), rows, p.width, m,
                l.buffer<O>(GATHER_MATVEC_SWIGLU_OUT) + pair * m * n, products, p.upColumns);
  }
  return 0;
}

}  // namespace

#define MATVEC_SWIGLU(x, w, o, X, W, O)                            \
  MLXTS_KERNEL_OF_LEFT(gather_matvec_swiglu_##x##_##w##_##o, X, W, \
                       gather_matvec_swiglu<L, W, O>(launch, dot_range<W, KeptRow<L, W>, O>))
MLXTS_PRODUCT_VARIANTS(MATVEC_SWIGLU)
