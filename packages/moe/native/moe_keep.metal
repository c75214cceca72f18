#include "moe_keep.params.h"
#include "portable.h"

using namespace metal;
using namespace mlxts;

// Whether a pair has an index that is no expert's; the fault record then names the first.
METAL_FUNC bool finds_wrong_index(Indices indices, constant MoeKeepParams& p, device MlxtsFault* fault, uint lane) {
  uint wrong = ~0u, found = 0;
  for (uint pair = lane; pair < p.pairs; pair += kSimd) {
    const uint expert = uint(indices.read(pair));
    if (expert < p.experts || wrong != ~0u) continue;
    wrong = pair;
    found = expert;
  }
  return !FaultSearch{fault, lane}.none(wrong, MOE_KEEP_FAULT_INDEX, found, wrong);
}

METAL_FUNC bool is_chosen(Indices indices, uint pairs, uint expert) {
  for (uint pair = 0; pair < pairs; ++pair)
    if (uint(indices.read(pair)) == expert) return true;
  return false;
}

// How many experts are to be evicted before this one.
METAL_FUNC uint evicted_before(device const uint* aged, uint experts, uint expert) {
  uint before = 0;
  for (uint e = 0; e < experts; ++e)
    before += aged[e] > aged[expert] || (e < expert && aged[e] == aged[expert]) ? 1 : 0;
  return before;
}

// One simdgroup: all experts of a layer.
kernel void moe_keep_u32(device const Index* indices_buffer [[buffer(MOE_KEEP_INDICES)]],
                         device const uint* ages [[buffer(MOE_KEEP_AGES)]],
                         device uint* aged [[buffer(MOE_KEEP_AGED)]], device uint* chosen [[buffer(MOE_KEEP_CHOSEN)]],
                         device uint* evicted [[buffer(MOE_KEEP_EVICTED)]],
                         constant MoeKeepParams& p [[buffer(MOE_KEEP_PARAMS)]],
                         device MlxtsFault* fault [[buffer(MOE_KEEP_FAULT)]],
                         uint lane [[thread_index_in_simdgroup]]) {
  const Indices indices = {indices_buffer, true};
  if (finds_wrong_index(indices, p, fault, lane)) return;
  uint kept = 0;
  for (uint e = lane; e < p.experts; e += kSimd) {
    const uint age = ages[e];
    const bool wanted = is_chosen(indices, p.pairs, e);
    const uint now = wanted ? 1 : age == 0 || age == ~0u ? age : age + 1;
    aged[e] = now;
    chosen[e] = wanted ? 1 : 0;
    kept += now ? 1 : 0;
  }
  kept = simd_sum(kept);
  const uint excess = kept > p.keep ? kept - p.keep : 0;
  simdgroup_barrier(mem_flags::mem_device);
  for (uint e = lane; e < p.experts; e += kSimd)
    evicted[e] = excess && aged[e] && evicted_before(aged, p.experts, e) < excess ? 1 : 0;
  simdgroup_barrier(mem_flags::mem_device);
  for (uint e = lane; e < p.experts; e += kSimd)
    if (evicted[e]) aged[e] = 0;
}
