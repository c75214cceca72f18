// gathered_rows.h, for the tests of core.
#include "gathered_order.params.h"
#include "gathered_pairs.params.h"
#include "gathered_rows.h"
#include "slot_parts.params.h"

using namespace mlxts;

namespace {

int32_t gathered_pairs(const Launch& l) {
  const auto& p = l.args<GatheredPairsParams>();
  const GatheredPairs<GatheredPairsParams> pairs = {p, l.indices(GATHERED_PAIRS_RHS_INDICES),
                                                    l.indices(GATHERED_PAIRS_LHS_INDICES)};
  const GatherFaults codes = {GATHERED_PAIRS_FAULT_RHS_INDICES, GATHERED_PAIRS_FAULT_LHS_INDICES, 0, 0};
  if (l.begin == 0 && !pairs.right(l, codes)) return 1;
  uint32_t* matrices = l.buffer<uint32_t>(GATHERED_PAIRS_MATRICES);
  for (uint64_t i = l.begin; i < l.end; ++i) {
    matrices[2 * i] = uint32_t(pairs.left(i));
    matrices[2 * i + 1] = uint32_t(pairs.matrix(i));
  }
  return 0;
}

int32_t gathered_order(const Launch& l) {
  const auto& p = l.args<GatheredOrderParams>();
  const GatheredOrder<GatheredOrderParams> ordered = {
      {p, l.indices(GATHERED_ORDER_RHS_INDICES), l.indices(GATHERED_ORDER_LHS_INDICES)},
      l.indices(GATHERED_ORDER_ORDER),
      l.indices(GATHERED_ORDER_OFFSETS)};
  const GatherFaults codes = {GATHERED_ORDER_FAULT_RHS_INDICES, GATHERED_ORDER_FAULT_LHS_INDICES,
                              GATHERED_ORDER_FAULT_OFFSETS, GATHERED_ORDER_FAULT_ORDER};
  if (l.begin == 0 && !ordered.right(l, codes)) return 1;
  for (uint64_t slot = l.begin; slot < l.end; ++slot) {
    uint32_t* rows = l.buffer<uint32_t>(GATHERED_ORDER_ROWS) + 2 * slot;
    uint32_t* found = l.buffer<uint32_t>(GATHERED_ORDER_FOUND) + 2 * GATHERED_ORDER_MOST * slot;
    const GatheredRows own = ordered.rows(slot, GATHERED_ORDER_MOST);
    rows[0] = uint32_t(own.matrix);
    rows[1] = uint32_t(own.count);
    for (size_t i = 0; i < own.count; ++i) {
      const GatheredRow row = ordered.row(own.first + i);
      found[2 * i] = uint32_t(row.out);
      found[2 * i + 1] = uint32_t(row.x);
    }
  }
  return 0;
}

int32_t slot_parts(const Launch& l) {
  const auto& p = l.args<SlotPartsParams>();
  const GatheredOrder<SlotPartsParams> ordered = {{p, l.indices(SLOT_PARTS_RHS_INDICES), Indices(nullptr)},
                                                  l.indices(SLOT_PARTS_ORDER),
                                                  l.indices(SLOT_PARTS_OFFSETS)};
  uint32_t* taken = l.buffer<uint32_t>(SLOT_PARTS_TAKEN);
  uint32_t* by = l.buffer<uint32_t>(SLOT_PARTS_BY);
  SlotParts<SlotPartsParams> parts(l, ordered, SLOT_PARTS_MOST);
  for (SlotPart part; parts.next(part);)
    for (size_t i = 0; i < part.rows.count; ++i) {
      const size_t row = ordered.row(part.rows.first + i).out * l.threadgroups[0];
      for (uint64_t block = part.first; block < part.last; ++block) {
        ++taken[row + block];
        by[row + block] = uint32_t(l.begin);
      }
    }
  return 0;
}

}  // namespace

MLXTS_KERNEL(slot_parts_u32, slot_parts)
MLXTS_KERNEL(gathered_pairs_u32, gathered_pairs)
MLXTS_KERNEL(gathered_order_u32, gathered_order)
