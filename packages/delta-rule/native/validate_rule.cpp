// One threadgroup: a block of tokens. The first of them with a gate, a beta or a step that lets the state grow.
#include "cpu_kernel.h"
#include "sequences.h"
#include "simd.h"
#include "validate_rule.params.h"

using namespace mlxts;

namespace {

template <typename T>
int32_t validate_rule(const Launch& l) {
  const auto& p = l.args<ValidateRuleParams>();
  const uint8_t* mask = l.buffer<const uint8_t>(VALIDATE_RULE_MASK);
  const auto fail = [&](uint32_t code, float value, uint64_t token, uint32_t head) {
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return l.fail(code, bits, uint32_t(token), head);
  };
  const uint64_t first = l.begin * p.tokensPerThreadgroup;
  const uint64_t last = l.end * p.tokensPerThreadgroup < p.tokens ? l.end * p.tokensPerThreadgroup : p.tokens;
  for (uint64_t token = first; token < last; ++token) {
    if (mask && !mask[token]) continue;
    for (uint32_t head = 0; head < p.heads; ++head) {
      const size_t at = token * p.heads + head;
      const float* gates = l.buffer<const float>(VALIDATE_RULE_G) + at * p.channels;
      for (uint32_t c = 0; c < p.channels; ++c) {
        const bool grows = p.gateFactor != 0 ? gates[c] * p.gateFactor > 0 : gates[c] < 0 || gates[c] > 1;
        if (grows) return fail(VALIDATE_RULE_FAULT_GATE, gates[c], token, head);
      }
      const float beta = l.buffer<const float>(VALIDATE_RULE_BETA)[at];
      if (beta < 0) return fail(VALIDATE_RULE_FAULT_BETA, beta, token, head);
      const size_t key = token * p.keyHeads + key_head_of(head, p.headsPerKey, p.keyHeads);
      float squares = sum_of_squares(l.buffer<const T>(VALIDATE_RULE_K) + key * p.keyDim, p.keyDim);
      if (p.qkNorm) {
        const float norm = std::sqrt(squares + p.eps);
        squares /= norm < p.normFloor ? p.normFloor * p.normFloor : squares + p.eps;
      }
      const float step = beta * squares;
      if (step > 2.001f) return fail(VALIDATE_RULE_FAULT_STEP, step, token, head);
    }
  }
  return 0;
}

}  // namespace

MLXTS_KERNEL(validate_rule_f32, validate_rule<float>)
MLXTS_KERNEL(validate_rule_f16, validate_rule<f16>)
MLXTS_KERNEL(validate_rule_bf16, validate_rule<bf16>)
