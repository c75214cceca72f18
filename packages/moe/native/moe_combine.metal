#include "moe_combine.params.h"
#include "slot_rows.h"

using namespace metal;
using namespace mlxts;

// Elements at … at + 3 of a row of `dim`; zeros behind its end.
template <typename T>
METAL_FUNC float4 load_row(device const T* row, uint at, uint dim) {
  if (at + 4 <= dim) return load4(row + at);
  return float4(float(row[at]), at + 1 < dim ? float(row[at + 1]) : 0.0f, at + 2 < dim ? float(row[at + 2]) : 0.0f,
                0.0f);
}

template <typename T>
METAL_FUNC void store_row(device T* row, uint at, uint dim, float4 v) {
  if (at + 4 <= dim) return store4(row + at, v);
  for (uint i = 0; at + i < dim; ++i) row[at + i] = T(v[i]);
}

// Reports the first pair that the order does not have; `last` is one.
METAL_FUNC void report_first(SlotRows slots, uint last, device MlxtsFault* fault) {
  if (!claim_fault(fault)) return;
  uint first = 0;
  while (first < last && slots.right(first)) ++first;
  write_fault(fault, MOE_COMBINE_FAULT_MISSING, first);
}

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
  const bool ordered = p.present & MOE_COMBINE_HAS_ORDER;
  const SlotRows slots = {{order, ordered}, {places, ordered}, p.tokens * p.topK};
  if (at >= p.dim) return;
  float4 sum = float4(0.0f);
  for (uint j = 0; j < p.topK; ++j) {
    const uint pair = token * p.topK + j;
    if (!slots.right(pair)) return report_first(slots, pair, fault);
    sum = fma(load_row(y + ulong(slots.row(pair)) * p.dim, at, p.dim), float4(weights[pair]), sum);
  }
  const ulong row = ulong(token) * p.dim;
  if (p.present & MOE_COMBINE_HAS_SHARED) {
    const float gate =
        p.present & MOE_COMBINE_HAS_SHARED_GATE ? times_sigmoid(1.0f, 1.0f, float(sharedGate[token])) : 1.0f;
    sum = fma(load_row(shared + row, at, p.dim), float4(gate), sum);
  }
  if (p.present & MOE_COMBINE_HAS_RESIDUAL) sum += load_row(residual + row, at, p.dim);
  store_row(out + row, at, p.dim, sum);
}

#define MOE_COMBINE(name, T) \
  template [[host_name("moe_combine_" name)]] [[kernel]] decltype(moe_combine<T>) moe_combine<T>;
MOE_COMBINE("f32", float)
MOE_COMBINE("f16", half)
MOE_COMBINE("bf16", bfloat)
