#include "../kernels/limit.params.h"
#include "metal_kernel.h"

using namespace metal;
using namespace mlxts;

[[host_name("limit_u32")]] kernel void limit(device const uint* x [[buffer(LIMIT_X)]],
                                             device uint* out [[buffer(LIMIT_OUT)]],
                                             constant LimitParams& p [[buffer(LIMIT_PARAMS)]],
                                             device MlxtsFault* fault [[buffer(LIMIT_FAULT)]],
                                             uint group [[threadgroup_position_in_grid]]) {
  if (x[group] < p.limit) {
    out[group] = x[group];
    return;
  }
  if (!claim_fault(fault)) return;
  uint first = 0;
  while (x[first] < p.limit) ++first;
  write_fault(fault, LIMIT_FAULT_TOO_LARGE, x[first]);
}
