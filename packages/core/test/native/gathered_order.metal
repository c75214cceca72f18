// gathered_rows.h, for the tests of core. One threadgroup: one slot.
#include "../kernels/gathered_order.params.h"
#include "gathered_rows.h"

using namespace metal;
using namespace mlxts;

kernel void gathered_order_u32(device const Index* rhs [[buffer(GATHERED_ORDER_RHS_INDICES)]],
                               device const Index* lhs [[buffer(GATHERED_ORDER_LHS_INDICES)]],
                               device const Index* order [[buffer(GATHERED_ORDER_ORDER)]],
                               device const Index* offsets [[buffer(GATHERED_ORDER_OFFSETS)]],
                               device uint* rows [[buffer(GATHERED_ORDER_ROWS)]],
                               device uint* found [[buffer(GATHERED_ORDER_FOUND)]],
                               constant GatheredOrderParams& p [[buffer(GATHERED_ORDER_PARAMS)]],
                               device MlxtsFault* fault [[buffer(GATHERED_ORDER_FAULT)]],
                               uint slot [[threadgroup_position_in_grid]],
                               uint lane [[thread_index_in_simdgroup]]) {
  const GatheredOrder<GatheredOrderParams> ordered = {
      {p, {rhs, true}, {lhs, (p.present & GATHERED_ORDER_HAS_LHS_INDICES) != 0}},
      {order, (p.present & GATHERED_ORDER_HAS_ORDER) != 0},
      {offsets, (p.present & GATHERED_ORDER_HAS_OFFSETS) != 0}};
  const GatherFaults codes = {GATHERED_ORDER_FAULT_RHS_INDICES, GATHERED_ORDER_FAULT_LHS_INDICES,
                              GATHERED_ORDER_FAULT_OFFSETS, GATHERED_ORDER_FAULT_ORDER};
  if (slot == 0 && !ordered.right(FaultSearch{fault, lane}, codes)) return;
  const GatheredRows own = ordered.rows(slot, GATHERED_ORDER_MOST);
  if (lane == 0) {
    rows[2 * slot] = own.matrix;
    rows[2 * slot + 1] = own.count;
  }
  if (lane >= own.count) return;
  const GatheredRow row = ordered.row(own.first + lane);
  device uint* to = found + 2 * (GATHERED_ORDER_MOST * slot + lane);
  to[0] = row.out;
  to[1] = row.x;
}
