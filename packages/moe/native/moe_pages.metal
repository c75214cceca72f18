#include "gathered_rows.h"
#include "moe_pages.params.h"

using namespace metal;
using namespace mlxts;

// Whether an expert that starts there lies within the stack, or elsewhere.
METAL_FUNC bool fits(uint start, constant MoePagesParams& p) {
  return start == kElsewhere || (start <= p.elements && p.elements - start >= p.expertBytes / p.unit);
}

// Reports the first start that leaves no room: one before that of expert `last`, or `wrong`, which was read there.
METAL_FUNC void report_first(Indices starts, uint wrong, uint last, constant MoePagesParams& p,
                             device MlxtsFault* fault) {
  if (!claim_fault(fault)) return;
  uint first = 0, start = wrong;
  while (first < last && fits(start = uint(starts.read(first)), p)) ++first;
  write_fault(fault, MOE_PAGES_FAULT_START, first < last ? start : wrong, first);
}

// One thread: one expert. The driver of a GPU keeps whole buffers in memory, so there is nothing to fetch or to evict.
kernel void moe_pages_u32(device const Index* starts_buffer [[buffer(MOE_PAGES_STARTS)]],
                          device const uint* chosen [[buffer(MOE_PAGES_CHOSEN)]],
                          device uint* resident [[buffer(MOE_PAGES_RESIDENT)]],
                          constant MoePagesParams& p [[buffer(MOE_PAGES_PARAMS)]],
                          device MlxtsFault* fault [[buffer(MOE_PAGES_FAULT)]], uint e [[thread_position_in_grid]]) {
  if (e >= p.experts) return;
  const Indices starts = {starts_buffer, bool(p.present & MOE_PAGES_HAS_STARTS)};
  bool held = true;
  if (starts) {
    const uint start = uint(starts.read(e));
    if (!fits(start, p)) return report_first(starts, start, e, p, fault);
    held = start != kElsewhere;
  }
  if (p.present & MOE_PAGES_HAS_RESIDENT) resident[e] = held && chosen[e] ? p.expertBytes : 0;
}
