// One threadgroup: some tokens. Finds the first of them with a gate, a beta or a step that lets the state grow.
#include "cpu_kernel.h"
#include "growth.h"
#include "sequences.h"
#include "simd.h"
#include "validate_rule.params.h"

using namespace mlxts;

namespace {

int32_t fail(const Launch& l, uint32_t code, float value, size_t token, size_t head) {
  uint32_t bits;
  memcpy(&bits, &value, sizeof bits);
  return l.fail(code, bits, uint32_t(token), uint32_t(head));
}

// 0 where one head of one token keeps the state from growing.
template <typename T>
int32_t check_head(const Launch& l, const ValidateRuleParams& p, size_t token, size_t head) {
  const size_t at = token * p.heads + head;
  const float* gates = l.buffer<const float>(VALIDATE_RULE_G) + at * p.channels;
  for (size_t c = 0; c < p.channels; ++c)
    if (gate_grows(gates[c], p.gateFactor)) return fail(l, VALIDATE_RULE_FAULT_GATE, gates[c], token, head);
  const float beta = l.buffer<const float>(VALIDATE_RULE_BETA)[at];
  if (beta < 0) return fail(l, VALIDATE_RULE_FAULT_BETA, beta, token, head);
  const size_t key = token * p.keyHeads + key_head_of(head, p.headsPerKey, p.keyHeads);
  float squares = sum_of_squares(l.buffer<const T>(VALIDATE_RULE_K) + key * p.keyDim, p.keyDim);
  if (p.qkNorm) squares = normalized_squares(squares, std::sqrt(squares + p.eps), p.eps, p.normFloor);
  const float step = beta * squares;
  return step_grows(step) ? fail(l, VALIDATE_RULE_FAULT_STEP, step, token, head) : 0;
}

template <typename T>
int32_t validate_rule(const Launch& l) {
  const auto& p = l.args<ValidateRuleParams>();
  const uint8_t* mask = l.buffer<const uint8_t>(VALIDATE_RULE_MASK);
  const size_t first = l.begin * VALIDATE_RULE_TOKENS_PER_THREADGROUP;
  const size_t end = l.end * VALIDATE_RULE_TOKENS_PER_THREADGROUP;
  for (size_t token = first; token < end && token < p.tokens; ++token) {
    if (mask && !mask[token]) continue;
    for (size_t head = 0; head < p.heads; ++head)
      if (const int32_t failed = check_head<T>(l, p, token, head)) return failed;
  }
  return 0;
}

}  // namespace

MLXTS_KERNEL(validate_rule_f32, validate_rule<float>)
MLXTS_KERNEL(validate_rule_f16, validate_rule<f16>)
MLXTS_KERNEL(validate_rule_bf16, validate_rule<bf16>)
