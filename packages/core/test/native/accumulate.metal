#include <metal_stdlib>
#include "../kernels/accumulate.params.h"
using namespace metal;

[[host_name("accumulate_u32")]] kernel void accumulate(device const uint* x [[buffer(ACCUMULATE_X)]],
                                                       device const uint* y [[buffer(ACCUMULATE_Y)]],
                                                       device uint* total [[buffer(ACCUMULATE_TOTAL)]],
                                                       constant AccumulateParams& p [[buffer(ACCUMULATE_PARAMS)]]) {
  *total += *x + (p.present & ACCUMULATE_HAS_Y ? *y : 0);
}
