#include "moe_order.params.h"
#include "portable.h"

using namespace metal;
using namespace mlxts;

// Pairs that a lane reads at a time: their loads wait for nothing.
constant constexpr uint kAhead = 4;

// One simdgroup: one expert. Each looks at all pairs before it writes anything, so that a dispatch that fails has
// written nothing.
kernel void moe_order_u32(device const Index* indices_buffer [[buffer(MOE_ORDER_INDICES)]],
                          device int* order [[buffer(MOE_ORDER_ORDER)]],
                          device int* offsets [[buffer(MOE_ORDER_OFFSETS)]],
                          constant MoeOrderParams& p [[buffer(MOE_ORDER_PARAMS)]],
                          device MlxtsFault* fault [[buffer(MOE_ORDER_FAULT)]],
                          uint group [[threadgroup_position_in_grid]], uint lane [[thread_index_in_simdgroup]],
                          uint simdgroup [[simdgroup_index_in_threadgroup]]) {
  const Indices indices = {indices_buffer, true};
  const uint expert = group * MOE_ORDER_EXPERTS_TOGETHER + simdgroup;
  if (expert >= p.experts) return;
  uint before = 0, wrong = ~0u, found = 0;
  for (uint pair = lane; pair < p.pairs; pair += kSimd) {
    const uint chosen = uint(indices.read(pair));
    before += chosen < expert ? 1 : 0;
    if (chosen < p.experts || wrong != ~0u) continue;
    wrong = pair;
    found = chosen;
  }
  if (!FaultSearch{fault, lane}.none(wrong, MOE_ORDER_FAULT_INDEX, found, wrong)) return;
  uint next = simd_sum(before);
  if (lane == 0) offsets[expert] = int(next);
  if (lane == 0 && expert == p.experts - 1) offsets[p.experts] = int(p.pairs);

  for (uint first = 0; first < p.pairs; first += kAhead * kSimd) {
    bool own[kAhead];
    MLXTS_UNROLL for (uint i = 0; i < kAhead; ++i) {
      const uint pair = first + i * kSimd + lane;
      own[i] = pair < p.pairs && uint(indices.read(pair)) == expert;
    }
    MLXTS_UNROLL for (uint i = 0; i < kAhead; ++i) {
      const uint one = own[i] ? 1 : 0, place = next + simd_prefix_exclusive_sum(one);
      // Others may have written the indices meanwhile.
      if (own[i] && place < p.pairs) order[place] = int(first + i * kSimd + lane);
      next += simd_sum(one);
    }
  }
}
