// One threadgroup: groupColumns rows of the matrix that a pair has chosen against the pair's rows of x.
#include <algorithm>

#include "gather_matvec.params.h"
#include "matvec_rows.h"
#include "product_variants.h"
#include "stacked_weight.h"

using namespace mlxts;

namespace {

// Which matrices each pair has.
struct Pairs {
  GatheredPairs<GatherMatvecParams> chosen;
  StackedWeight stack;
};

Pairs pairs_of(const Launch& l, const GatherMatvecParams& p) {
  return {{p, l.indices(GATHER_MATVEC_RHS_INDICES), l.indices(GATHER_MATVEC_LHS_INDICES)},
          {size_t(p.n) * p.k, p.matrices, p.startEnd, l.indices(GATHER_MATVEC_STARTS)}};
}

// Whether all index tensors are right.
bool right(const Launch& l, const Pairs& pairs) {
  const GatherFaults codes{GATHER_MATVEC_FAULT_RHS_INDICES, GATHER_MATVEC_FAULT_LHS_INDICES, 0, 0};
  return pairs.chosen.right(l, codes) && pairs.stack.right(l, GATHER_MATVEC_FAULT_STARTS);
}

template <typename X, typename W>
int32_t gather_matvec(const Launch& l, size_t outBytes, DotRange<W, KeptRow<X, W>> dots) {
  const auto& p = l.args<GatherMatvecParams>();
  const Pairs pairs = pairs_of(l, p);
  if (l.begin == 0 && !right(l, pairs)) return 1;
  using E = KeptRow<X, W>;
  E* rows = reinterpret_cast<E*>(scratch_of(l, p).x);  // [m][width]
  const W* weight = l.buffer<const W>(GATHER_MATVEC_WEIGHT);
  const size_t groups = l.threadgroups[0], m = p.m, n = p.n;
  size_t kept = ~size_t(0);  // the matrix of x whose rows are kept
  for (uint64_t group = l.begin; group < l.end;) {
    const size_t pair = group / groups, first = group % groups,
                 last = std::min<size_t>(first + (l.end - group), groups);
    group += last - first;
    const size_t matrix = pairs.chosen.matrix(pair);
    if (!pairs.stack.holds(matrix)) continue;
    if (const size_t left = pairs.chosen.left(pair); left != kept) {
      const X* x = l.buffer<const X>(GATHER_MATVEC_X) + left * m * p.k;
      keep_rows<W>(x, m, p.k, p.width, rows);
      kept = left;
    }
    const DotOutputs out{l.buffer<uint8_t>(GATHER_MATVEC_OUT) + pair * m * n * outBytes, n, {}, {}, {}};
    dots(weight + pairs.stack.begin(matrix), p.k, first * p.groupColumns, std::min(last * p.groupColumns, n), rows,
         p.width, int(m), out);
  }
  return 0;
}

}  // namespace

#define MATVEC(x, w, o, X, W, O)                            \
  MLXTS_KERNEL_OF_LEFT(gather_matvec_##x##_##w##_##o, X, W, \
                       gather_matvec<L, W>(launch, sizeof(O), dot_range<W, KeptRow<L, W>, O>))
MLXTS_PRODUCT_VARIANTS(MATVEC)
