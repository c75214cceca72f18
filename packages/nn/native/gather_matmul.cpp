// One threadgroup: kGroupColumns columns of the products of a slot, which is up to groupRows rows of x with one matrix.
// Few rows meet the matrix as it is; for more it is packed into panels.
#include <algorithm>

#include "gather_matmul.params.h"
#include "matmul_panels.h"
#include "matvec_rows.h"
#include "stacked_weight.h"

using namespace mlxts;

namespace {

static_assert(kPanelRows == GATHER_MATMUL_PANEL_ROWS && kGroupColumns == GATHER_MATMUL_GROUP_COLUMNS &&
              kPieceRows == GATHER_MATMUL_DEPTH);

template <typename X, typename W, typename O>
int32_t gather_matmul(const Launch& l) {
  const auto& p = l.args<GatherMatmulParams>();
  const GatherMatmulScratch s = scratch_of(l, p);
  const GatheredOrder<GatherMatmulParams> ordered{
      {p, l.indices(GATHER_MATMUL_RHS_INDICES), l.indices(GATHER_MATMUL_LHS_INDICES)},
      l.indices(GATHER_MATMUL_ORDER),
      l.indices(GATHER_MATMUL_OFFSETS)};
  const StackedWeight stack{size_t(p.n) * p.k, p.matrices, p.startEnd, l.indices(GATHER_MATMUL_STARTS)};
  const GatherFaults codes{GATHER_MATMUL_FAULT_RHS_INDICES, GATHER_MATMUL_FAULT_LHS_INDICES,
                           GATHER_MATMUL_FAULT_OFFSETS, GATHER_MATMUL_FAULT_ORDER};
  if (l.begin == 0 && !(ordered.right(l, codes) && stack.right(l, GATHER_MATMUL_FAULT_STARTS))) return 1;
  using E = KeptRow<X, W>;
  E* kept = reinterpret_cast<E*>(s.x);  // [unpackedRows][width]
  const auto row_at = [&](size_t i) { return l.buffer<const X>(GATHER_MATMUL_X) + s.xRows[i] * size_t(p.k); };
  const size_t groups = l.threadgroups[0], n = p.n;
  for (uint64_t group = l.begin; group < l.end;) {
    const size_t index = group / groups, first = group % groups,
                 last = std::min<size_t>(first + (l.end - group), groups);
    group += last - first;
    const GatheredRows slot = ordered.rows(index, p.groupRows);
    if (slot.count == 0) continue;
    for (size_t i = 0; i < slot.count; ++i) {
      const GatheredRow row = ordered.row(slot.first + i);
      s.xRows[i] = uint32_t(row.x);
      s.outRows[i] = uint32_t(row.out);
    }
    const W* weight = l.buffer<const W>(GATHER_MATMUL_WEIGHT) + stack.begin(slot.matrix);
    const auto out_at = [&](size_t i) { return l.buffer<O>(GATHER_MATMUL_OUT) + s.outRows[i] * n; };
    if (slot.count <= p.unpackedRows) {
      for (size_t i = 0; i < slot.count; ++i) keep_row<W>(row_at(i), p.k, p.width, kept + i * p.width);
      dot_range(weight, p.k, first * kGroupColumns, std::min(last * kGroupColumns, n), kept, p.width, int(slot.count),
                [&](const DotSums& sums) { sums.store(out_at); });
      continue;
    }
    for (size_t n0 = first * kGroupColumns; n0 < std::min(last * kGroupColumns, n); n0 += kGroupColumns) {
      multiply_columns(row_at, int(slot.count), Weight<W>{weight, n, p.k, true}, n0, {s.panels, s.converted, s.sums});
      const size_t columns = std::min(n - n0, kGroupColumns);
      for (size_t i = 0; i < slot.count; ++i) convert_row(s.sums + i * kGroupColumns, columns, out_at(i) + n0);
    }
  }
  return 0;
}

}  // namespace

#define MATMUL_OUTPUTS(x, w, X, W)                                        \
  MLXTS_KERNEL(gather_matmul_##x##_##w##_f32, gather_matmul<X, W, float>) \
  MLXTS_KERNEL(gather_matmul_##x##_##w##_f16, gather_matmul<X, W, f16>)   \
  MLXTS_KERNEL(gather_matmul_##x##_##w##_bf16, gather_matmul<X, W, bf16>)
#define MATMUL_WEIGHTS(x, X)       \
  MATMUL_OUTPUTS(x, f32, X, float) \
  MATMUL_OUTPUTS(x, f16, X, f16)   \
  MATMUL_OUTPUTS(x, bf16, X, bf16)
MATMUL_WEIGHTS(f32, float)
MATMUL_WEIGHTS(f16, f16)
MATMUL_WEIGHTS(bf16, bf16)
