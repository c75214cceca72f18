// One threadgroup: all experts of a layer.
#include <algorithm>
#include <limits>

#include "cpu_kernel.h"
#include "moe_keep.params.h"

using namespace mlxts;

namespace {

// The age after another call; it stays where a number ends.
uint32_t aged_by_one(uint32_t age) {
  return age == 0 || age == std::numeric_limits<uint32_t>::max() ? age : age + 1;
}

int32_t moe_keep(const Launch& l) {
  const auto& p = l.args<MoeKeepParams>();
  const Indices indices = l.indices(MOE_KEEP_INDICES);
  const uint32_t* ages = l.buffer<const uint32_t>(MOE_KEEP_AGES);
  const auto scratch = scratch_of(l, p);
  std::fill_n(scratch.wanted, p.experts, 0);
  for (uint32_t pair = 0; pair < p.pairs; ++pair) {
    const uint32_t expert = uint32_t(indices.read(pair));
    if (expert >= p.experts) return l.fail(MOE_KEEP_FAULT_INDEX, expert, pair);
    scratch.wanted[expert] = 1;
  }
  uint32_t kept = 0;
  for (uint32_t e = 0; e < p.experts; ++e) {
    scratch.age[e] = scratch.wanted[e] ? 1 : aged_by_one(ages[e]);
    if (scratch.age[e]) scratch.oldest[kept++] = e;
  }
  uint32_t* evicted = l.buffer<uint32_t>(MOE_KEEP_EVICTED);
  std::fill_n(evicted, p.experts, 0);
  const uint32_t excess = kept > p.keep ? kept - p.keep : 0;
  std::partial_sort(scratch.oldest, scratch.oldest + excess, scratch.oldest + kept, [&](uint32_t a, uint32_t b) {
    return scratch.age[a] != scratch.age[b] ? scratch.age[a] > scratch.age[b] : a < b;
  });
  for (uint32_t i = 0; i < excess; ++i) {
    evicted[scratch.oldest[i]] = 1;
    scratch.age[scratch.oldest[i]] = 0;
  }
  std::copy_n(scratch.age, p.experts, l.buffer<uint32_t>(MOE_KEEP_AGED));
  std::copy_n(scratch.wanted, p.experts, l.buffer<uint32_t>(MOE_KEEP_CHOSEN));
  return 0;
}

}  // namespace

MLXTS_KERNEL(moe_keep_u32, moe_keep)
