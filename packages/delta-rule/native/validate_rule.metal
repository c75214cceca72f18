// One thread: one head of one token. Finds a gate, a beta or a step that lets the state grow.
#include "growth.h"
#include "sequences.h"
#include "validate_rule.params.h"

using namespace metal;
using namespace mlxts;

// The code of the fault at one head of one token, 0 for none; `value` is then what lets the state grow.
template <typename T>
METAL_FUNC uint growth_at(device const T* k, device const float* g, device const float* betas, device const uchar* mask,
                          constant ValidateRuleParams& p, uint at, thread float& value) {
  const uint token = at / p.heads, head = at % p.heads;
  if ((p.present & VALIDATE_RULE_HAS_MASK) && mask[token] == 0) return 0;
  device const float* gates = g + ulong(at) * p.channels;
  for (uint c = 0; c < p.channels; ++c) {
    value = gates[c];
    if (gate_grows(value, p.gateFactor)) return VALIDATE_RULE_FAULT_GATE;
  }
  value = betas[at];
  if (value < 0.0f) return VALIDATE_RULE_FAULT_BETA;
  device const T* key = k + (ulong(token) * p.keyHeads + key_head_of(head, p.headsPerKey, p.keyHeads)) * p.keyDim;
  float squares = 0.0f;
  for (uint i = 0; i < p.keyDim; ++i) squares = fma(float(key[i]), float(key[i]), squares);
  if (p.qkNorm) squares = normalized_squares(squares, precise::sqrt(squares + p.eps), p.eps, p.normFloor);
  value *= squares;
  return step_grows(value) ? VALIDATE_RULE_FAULT_STEP : 0;
}

template <typename T>
kernel void validate_rule(device const T* k [[buffer(VALIDATE_RULE_K)]],
                          device const float* g [[buffer(VALIDATE_RULE_G)]],
                          device const float* betas [[buffer(VALIDATE_RULE_BETA)]],
                          device const uchar* mask [[buffer(VALIDATE_RULE_MASK)]],
                          constant ValidateRuleParams& p [[buffer(VALIDATE_RULE_PARAMS)]],
                          device MlxtsFault* fault [[buffer(VALIDATE_RULE_FAULT)]], uint at [[thread_position_in_grid]],
                          uint lane [[thread_index_in_simdgroup]]) {
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
