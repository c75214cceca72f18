// One threadgroup: groupColumns rows of the matrix that a pair has chosen against the pair's rows of x.
#include <algorithm>

#include "gather_matvec.params.h"
#include "matvec_rows.h"
#include "stacked_weight.h"

using namespace mlxts;

namespace {

template <typename X, typename W, typename O>
int32_t gather_matvec(const Launch& l) {
  const auto& p = l.args<GatherMatvecParams>();
  const GatheredPairs<GatherMatvecParams> pairs{p, l.indices(GATHER_MATVEC_RHS_INDICES),
                                                l.indices(GATHER_MATVEC_LHS_INDICES)};
  const StackedWeight stack{size_t(p.n) * p.k, p.matrices, p.startEnd, l.indices(GATHER_MATVEC_STARTS)};
  const GatherFaults codes{GATHER_MATVEC_FAULT_RHS_INDICES, GATHER_MATVEC_FAULT_LHS_INDICES, 0, 0};
  if (l.begin == 0 && !(pairs.right(l, codes) && stack.right(l, GATHER_MATVEC_FAULT_STARTS))) return 1;
  using E = KeptRow<X, W>;
  E* rows = reinterpret_cast<E*>(scratch_of(l, p).x);  // [m][width]
  const W* weight = l.buffer<const W>(GATHER_MATVEC_WEIGHT);
  const size_t groups = l.threadgroups[0], m = p.m, n = p.n;
  size_t kept = ~size_t(0);  // the matrix of x whose rows are kept
  for (uint64_t group = l.begin; group < l.end;) {
    const size_t pair = group / groups, first = group % groups,
                 last = std::min<size_t>(first + (l.end - group), groups);
    group += last - first;
    if (const size_t left = pairs.left(pair); left != kept) {
      const X* x = l.buffer<const X>(GATHER_MATVEC_X) + left * m * p.k;
      for (size_t i = 0; i < m; ++i) keep_row<W>(x + i * p.k, p.k, p.width, rows + i * p.width);
      kept = left;
    }
    O* out = l.buffer<O>(GATHER_MATVEC_OUT) + pair * m * n;
    dot_range(weight + stack.begin(pairs.matrix(pair)), p.k, first * p.groupColumns, std::min(last * p.groupColumns, n),
              rows, p.width, int(m), [&](const DotSums& s) { s.store([&](int i) { return out + i * n; }); });
  }
  return 0;
}

}  // namespace

#define MATVEC_OUTPUTS(x, w, X, W)                                        \
  MLXTS_KERNEL(gather_matvec_##x##_##w##_f32, gather_matvec<X, W, float>) \
  MLXTS_KERNEL(gather_matvec_##x##_##w##_f16, gather_matvec<X, W, f16>)   \
  MLXTS_KERNEL(gather_matvec_##x##_##w##_bf16, gather_matvec<X, W, bf16>)
#define MATVEC_WEIGHTS(x, X)       \
  MATVEC_OUTPUTS(x, f32, X, float) \
  MATVEC_OUTPUTS(x, f16, X, f16)   \
  MATVEC_OUTPUTS(x, bf16, X, bf16)
MATVEC_WEIGHTS(f32, float)
MATVEC_WEIGHTS(f16, f16)
MATVEC_WEIGHTS(bf16, bf16)
