#include "moe_keep.params.h"
#include "portable.h"

using namespace metal;
using namespace mlxts;

constant constexpr uint kBits = MOE_KEEP_FLAGS_TOGETHER;

// A flag for each expert of a layer, set by any lane.
struct Flags {
  threadgroup uint* words;

  void clear(uint experts, uint lane) const {
    for (uint i = lane; i < (experts + kBits - 1) / kBits; i += kSimd) words[i] = 0;
    simdgroup_barrier(mem_flags::mem_threadgroup);
  }
  void set(uint expert) const {
    threadgroup atomic_uint* word = (threadgroup atomic_uint*)(words + expert / kBits);
    atomic_fetch_or_explicit(word, 1u << expert % kBits, memory_order_relaxed);
  }
  bool operator[](uint expert) const { return words[expert / kBits] >> expert % kBits & 1; }
};

// Flags the experts of all pairs. False where one is no expert; the fault record then names the first of these.
METAL_FUNC bool flag_chosen(Indices indices, Flags flags, constant MoeKeepParams& p, device MlxtsFault* fault,
                            uint lane) {
  uint wrong = ~0u, found = 0;
  for (uint pair = lane; pair < p.pairs; pair += kSimd) {
    const uint expert = uint(indices.read(pair));
    if (expert < p.experts) {
      flags.set(expert);
    } else if (wrong == ~0u) {
      wrong = pair;
      found = expert;
    }
  }
  simdgroup_barrier(mem_flags::mem_threadgroup);
  return FaultSearch{fault, lane}.none(wrong, MOE_KEEP_FAULT_INDEX, found, wrong);
}

// How many experts have at least this age. A lane reads only what it has written itself.
METAL_FUNC uint count_from(device const uint* aged, uint experts, uint age, uint lane) {
  uint count = 0;
  for (uint e = lane; e < experts; e += kSimd) count += aged[e] >= age ? 1 : 0;
  return simd_sum(count);
}

// The greatest age that at least `count` experts have or exceed.
METAL_FUNC uint age_of_oldest(device const uint* aged, uint experts, uint count, uint lane) {
  uint age = 0;
  for (uint bit = 1u << 31; bit > 0; bit >>= 1)
    if (count_from(aged, experts, age | bit, lane) >= count) age |= bit;
  return age;
}

// One simdgroup: all experts of a layer.
kernel void moe_keep_u32(device const Index* indices_buffer [[buffer(MOE_KEEP_INDICES)]],
                         device const uint* ages [[buffer(MOE_KEEP_AGES)]],
                         device uint* aged [[buffer(MOE_KEEP_AGED)]], device uint* chosen [[buffer(MOE_KEEP_CHOSEN)]],
                         device uint* evicted [[buffer(MOE_KEEP_EVICTED)]],
                         constant MoeKeepParams& p [[buffer(MOE_KEEP_PARAMS)]],
                         device MlxtsFault* fault [[buffer(MOE_KEEP_FAULT)]],
                         threadgroup uchar* memory [[threadgroup(0)]], uint lane [[thread_index_in_simdgroup]]) {
  const Flags flags = {scratch_of(memory, p).wanted};
  flags.clear(p.experts, lane);
  const Indices indices = {indices_buffer, true};
  if (!flag_chosen(indices, flags, p, fault, lane)) return;
  for (uint e = lane; e < p.experts; e += kSimd) {
    const uint age = ages[e];
    const bool wanted = flags[e];
    aged[e] = wanted ? 1 : age == 0 || age == ~0u ? age : age + 1;
    chosen[e] = wanted ? 1 : 0;
  }
  const uint kept = count_from(aged, p.experts, 1, lane);
  const uint excess = kept > p.keep ? kept - p.keep : 0;
  // All that are older go, and of those with this age the first.
  const uint age = age_of_oldest(aged, p.experts, excess, lane);
  const uint older = age == ~0u ? 0 : count_from(aged, p.experts, age + 1, lane);
  uint equal = 0;
  for (uint first = 0; first < p.experts; first += kSimd) {
    const uint e = first + lane;
    const uint own = e < p.experts && aged[e] == age ? 1 : 0;
    const uint before = older + equal + simd_prefix_exclusive_sum(own);
    equal += simd_sum(own);
    if (e >= p.experts) continue;
    const bool goes = own ? before < excess : aged[e] > age;
    evicted[e] = goes ? 1 : 0;
    if (goes) aged[e] = 0;
  }
}
