// One thread: one head of one token: whether its gates, its beta and its step let the state grow.
#include "sequences.h"
#include "validate_rule.params.h"

using namespace metal;
using namespace mlxts;

// What lets the state grow at one head of one token, the fault's code or 0, and the value that does.
template <typename T>
METAL_FUNC uint growth_at(device const T* k, device const float* g, device const float* betas, device const uchar* mask,
                          constant ValidateRuleParams& p, uint at, thread float& value) {
  const uint token = at / p.heads, head = at % p.heads;
  if ((p.present & VALIDATE_RULE_HAS_MASK) && mask[token] == 0) return 0;
  device const float* gates = g + ulong(at) * p.channels;
  for (uint c = 0; c < p.channels; ++c) {
    value = gates[c];
    if (p.gateFactor != 0.0f ? value * p.gateFactor > 0.0f : value < 0.0f || value > 1.0f)
      return VALIDATE_RULE_FAULT_GATE;
  }
  value = betas[at];
  if (value < 0.0f) return VALIDATE_RULE_FAULT_BETA;
  device const T* key = k + (ulong(token) * p.keyHeads + key_head_of(head, p.headsPerKey, p.keyHeads)) * p.keyDim;
  float squares = 0.0f;
  for (uint i = 0; i < p.keyDim; ++i) squares = fma(float(key[i]), float(key[i]), squares);
  if (p.qkNorm) {
    const float norm = precise::sqrt(squares + p.eps);
    squares /= norm < p.normFloor ? p.normFloor * p.normFloor : squares + p.eps;
  }
  value *= squares;
  return value > 2.001f ? VALIDATE_RULE_FAULT_STEP : 0;
}

template <typename T>
kernel void validate_rule(device const T* k [[buffer(VALIDATE_RULE_K)]],
                          device const float* g [[buffer(VALIDATE_RULE_G)]],
                          device const float* betas [[buffer(VALIDATE_RULE_BETA)]],
                          device const uchar* mask [[buffer(VALIDATE_RULE_MASK)]],
                          constant ValidateRuleParams& p [[buffer(VALIDATE_RULE_PARAMS)]],
                          device MlxtsFault* fault [[buffer(VALIDATE_RULE_FAULT)]],
                          uint at [[thread_position_in_grid]], uint lane [[thread_index_in_simdgroup]]) {
  const uint all = p.tokens * p.heads;
  float value = 0.0f;
  if (!simd_any(at < all && growth_at(k, g, betas, mask, p, at, value) != 0)) return;
  // One simdgroup searches for the first from the beginning: there is one here at the latest.
  if (!simd_any(lane == 0 && claim_fault(fault))) return;
  for (uint begin = 0; begin < all; begin += kSimd) {
    const uint i = begin + lane, code = i < all ? growth_at(k, g, betas, mask, p, i, value) : 0;
    const uint first = simd_min(code ? i : ~0u);
    if (i == first) write_fault(fault, code, as_type<uint>(value), i / p.heads, i % p.heads);
    if (first != ~0u) return;
  }
}

#define VALIDATE_RULE(name, T) \
  template [[host_name("validate_rule_" name)]] [[kernel]] decltype(validate_rule<T>) validate_rule<T>;
VALIDATE_RULE("f32", float)
VALIDATE_RULE("f16", half)
VALIDATE_RULE("bf16", bfloat)
