#include "moe_combine.params.h"
#include "combined_row_metal.h"

using namespace metal;
using namespace mlxts;

// A row of threadgroups has one token, each thread four columns.
template <typename T>
kernel void moe_combine(
    device const T* y [[buffer(MOE_COMBINE_Y)]], device const float* weights [[buffer(MOE_COMBINE_WEIGHTS)]],
    device const Index* order [[buffer(MOE_COMBINE_ORDER)]], device const Index* places [[buffer(MOE_COMBINE_PLACES)]],
    device const T* shared [[buffer(MOE_COMBINE_SHARED)]],
    device const T* sharedGate [[buffer(MOE_COMBINE_SHARED_GATE)]],
    device const T* residual [[buffer(MOE_COMBINE_RESIDUAL)]], device T* out [[buffer(MOE_COMBINE_OUT)]],
    constant MoeCombineParams& p [[buffer(MOE_COMBINE_PARAMS)]], device MlxtsFault* fault [[buffer(MOE_COMBINE_FAULT)]],
    uint2 group [[threadgroup_position_in_grid]], uint2 position [[thread_position_in_threadgroup]],
    uint2 size [[threads_per_threadgroup]]) {
  const uint token = group.x, at = 4 * (group.y * size.x + position.x);
  if (at >= p.dim) return;
  const bool ordered = p.present & MOE_COMBINE_HAS_ORDER;
  const bool gated = p.present & MOE_COMBINE_HAS_SHARED_GATE;
  const ulong start = ulong(token) * p.dim;
  const CombinedRow<T> row = {y,
                              weights,
                              {{order, ordered}, {places, ordered}, p.tokens * p.topK},
                              shared + start,
                              residual + start,
                              bool(p.present & MOE_COMBINE_HAS_SHARED),
                              bool(p.present & MOE_COMBINE_HAS_RESIDUAL),
                              gated ? times_sigmoid(1.0f, 1.0f, float(sharedGate[token])) : 1.0f,
                              token * p.topK,
                              p.topK,
                              p.dim};
  if (!row.right(fault, MOE_COMBINE_FAULT_MISSING)) return;
  const uint count = elements_at(at, p.dim);
  store_some(out + start + at, row(at, count), count);
}

#define MOE_COMBINE(name, T) \
  template [[host_name("moe_combine_" name)]] [[kernel]] decltype(moe_combine<T>) moe_combine<T>;
MOE_COMBINE("f32", float)
MOE_COMBINE("f16", half)
MOE_COMBINE("bf16", bfloat)
