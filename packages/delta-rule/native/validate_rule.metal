// One thread: one head of one token: whether its gates, its beta and its step let the state grow.
#include "sequences_metal.h"
#include "validate_rule.params.h"

using namespace metal;
using namespace mlxts;

template <typename T>
kernel void validate_rule(device const T* k [[buffer(VALIDATE_RULE_K)]],
                          device const float* g [[buffer(VALIDATE_RULE_G)]],
                          device const float* betas [[buffer(VALIDATE_RULE_BETA)]],
                          device const uchar* mask [[buffer(VALIDATE_RULE_MASK)]],
                          constant ValidateRuleParams& p [[buffer(VALIDATE_RULE_PARAMS)]],
                          device MlxtsFault* fault [[buffer(VALIDATE_RULE_FAULT)]],
                          uint at [[thread_position_in_grid]]) {
  if (at >= p.tokens * p.heads) return;
  const uint token = at / p.heads, head = at % p.heads;
  if ((p.present & VALIDATE_RULE_HAS_MASK) && mask[token] == 0) return;
  device const float* gates = g + ulong(at) * p.channels;
  for (uint c = 0; c < p.channels; ++c) {
    const float gate = gates[c];
    const bool grows = p.gateFactor != 0.0f ? gate * p.gateFactor > 0.0f : gate < 0.0f || gate > 1.0f;
    if (grows) return report_fault(fault, VALIDATE_RULE_FAULT_GATE, as_type<uint>(gate), token, head);
  }
  const float beta = betas[at];
  if (beta < 0.0f) return report_fault(fault, VALIDATE_RULE_FAULT_BETA, as_type<uint>(beta), token, head);
  device const T* key = k + (ulong(token) * p.keyHeads + key_head_of(head, p.headsPerKey, p.keyHeads)) * p.keyDim;
  float squares = 0.0f;
  for (uint i = 0; i < p.keyDim; ++i) squares = fma(float(key[i]), float(key[i]), squares);
  if (p.qkNorm) {
    const float norm = precise::sqrt(squares + p.eps);
    squares /= norm < p.normFloor ? p.normFloor * p.normFloor : squares + p.eps;
  }
  const float step = beta * squares;
  if (step > 2.001f) report_fault(fault, VALIDATE_RULE_FAULT_STEP, as_type<uint>(step), token, head);
}

#define VALIDATE_RULE(name, T) \
  template [[host_name("validate_rule_" name)]] [[kernel]] decltype(validate_rule<T>) validate_rule<T>;
VALIDATE_RULE("f32", float)
VALIDATE_RULE("f16", half)
VALIDATE_RULE("bf16", bfloat)
