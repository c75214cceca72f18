// Generated from the declaration of validate_rule; `npm run gen` rewrites it.
#pragma once
#ifdef __METAL_VERSION__
#include <metal_stdlib>
#else
#include <stdint.h>
#include "cpu_kernel.h"
#endif

#define VALIDATE_RULE_K 0  // read
#define VALIDATE_RULE_G 1  // read
#define VALIDATE_RULE_BETA 2  // read
#define VALIDATE_RULE_MASK 3  // read?
#define VALIDATE_RULE_PARAMS 4
#define VALIDATE_RULE_FAULT 5
#define VALIDATE_RULE_HAS_MASK 8u
#define VALIDATE_RULE_FAULT_GATE 1
#define VALIDATE_RULE_FAULT_BETA 2
#define VALIDATE_RULE_FAULT_STEP 3

struct ValidateRuleParams {
  uint32_t tokens;
  uint32_t keyHeads;
  uint32_t headsPerKey;
  uint32_t heads;
  uint32_t channels;
  uint32_t keyDim;
  uint32_t tokensPerThreadgroup;
  uint32_t qkNorm;
  float eps;
  float normFloor;
  float gateFactor;
  uint32_t present;  // a bit for each buffer
  uint32_t scratch[1];  // byte offsets
};
static_assert(sizeof(ValidateRuleParams) == 52, "ValidateRuleParams must match the declaration of validate_rule");
#ifdef __METAL_VERSION__
struct ValidateRuleScratch {
  threadgroup uchar* memory;
};
inline ValidateRuleScratch scratch_of(threadgroup uchar* memory, constant ValidateRuleParams& p) {
  return {
      (threadgroup uchar*)(memory + p.scratch[0]),
  };
}
#else
struct ValidateRuleScratch {
  uint8_t* memory;
};
inline ValidateRuleScratch scratch_of(const MlxtsCpuLaunch& l, const ValidateRuleParams& p) {
  unsigned char* memory = static_cast<unsigned char*>(l.scratch);
  return {
      reinterpret_cast<uint8_t*>(memory + p.scratch[0]),
  };
}
#endif
