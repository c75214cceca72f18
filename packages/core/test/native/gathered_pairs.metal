// gathered_rows.h, for the tests of core. One threadgroup: one pair.
#include "../kernels/gathered_pairs.params.h"
#include "gathered_rows.h"

using namespace metal;
using namespace mlxts;

kernel void gathered_pairs_u32(device const Index* rhs [[buffer(GATHERED_PAIRS_RHS_INDICES)]],
                               device const Index* lhs [[buffer(GATHERED_PAIRS_LHS_INDICES)]],
                               device uint* matrices [[buffer(GATHERED_PAIRS_MATRICES)]],
                               constant GatheredPairsParams& p [[buffer(GATHERED_PAIRS_PARAMS)]],
                               device MlxtsFault* fault [[buffer(GATHERED_PAIRS_FAULT)]],
                               uint group [[threadgroup_position_in_grid]],
                               uint lane [[thread_index_in_simdgroup]]) {
  const GatheredPairs<GatheredPairsParams> pairs = {
      p, {rhs, true}, {lhs, (p.present & GATHERED_PAIRS_HAS_LHS_INDICES) != 0}};
  const GatherFaults codes = {GATHERED_PAIRS_FAULT_RHS_INDICES, GATHERED_PAIRS_FAULT_LHS_INDICES, 0, 0};
  if (group == 0 && !pairs.right(FaultSearch{fault, lane}, codes)) return;
  if (lane > 0) return;
  matrices[2 * group] = pairs.left(group);
  matrices[2 * group + 1] = pairs.matrix(group);
}
