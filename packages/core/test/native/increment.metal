#include <metal_stdlib>
#include "../kernels/increment.params.h"
using namespace metal;

// One thread per threadgroup. The CPU kernel spins for a time; this one does rounds of arithmetic instead.
[[host_name("increment_u32")]] kernel void increment(device const uint* x [[buffer(INCREMENT_X)]],
                                                     device uint* out [[buffer(INCREMENT_OUT)]],
                                                     constant IncrementParams& p [[buffer(INCREMENT_PARAMS)]],
                                                     uint group [[threadgroup_position_in_grid]]) {
  for (uint i = group * p.perGroup; i < (group + 1) * p.perGroup; ++i) out[i] = x[i] + 1;
}
