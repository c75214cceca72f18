// One threadgroup: all pairs of a token and a slot. They are few beside the products that follow.
#include <algorithm>

#include "cpu_kernel.h"
#include "moe_order.params.h"

using namespace mlxts;

namespace {

int32_t moe_order(const Launch& l) {
  const auto& p = l.args<MoeOrderParams>();
  const Indices indices = l.indices(MOE_ORDER_INDICES);
  int32_t* order = l.buffer<int32_t>(MOE_ORDER_ORDER);
  int32_t* offsets = l.buffer<int32_t>(MOE_ORDER_OFFSETS);
  uint32_t* next = scratch_of(l, p).next;
  std::fill_n(next, p.experts + 1, 0);
  for (uint32_t pair = 0; pair < p.pairs; ++pair) {
    const uint32_t expert = uint32_t(indices.read(pair));
    if (expert >= p.experts) return l.fail(MOE_ORDER_FAULT_INDEX, expert, pair);
    ++next[expert + 1];
  }
  for (uint32_t e = 0; e < p.experts; ++e) next[e + 1] += next[e];
  for (uint32_t e = 0; e <= p.experts; ++e) offsets[e] = int32_t(next[e]);
  // Others may have written the indices meanwhile.
  for (uint32_t pair = 0; pair < p.pairs; ++pair) {
    const uint32_t expert = uint32_t(indices.read(pair));
    if (expert < p.experts && next[expert] < p.pairs) order[next[expert]++] = int32_t(pair);
  }
  return 0;
}

}  // namespace

MLXTS_KERNEL(moe_order_u32, moe_order)
