// Generated from the declaration of validate_rule; `npm run gen` rewrites it.
#pragma once
#ifdef __METAL_VERSION__
#include <metal_stdlib>
#else
#include <stdint.h>
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
#ifndef __METAL_VERSION__
#define VALIDATE_RULE_TOKENS_PER_THREADGROUP 32
#endif

struct ValidateRuleParams {
  uint32_t tokens;
  uint32_t keyHeads;
  uint32_t headsPerKey;
  uint32_t heads;
  uint32_t channels;
  uint32_t keyDim;
  uint32_t qkNorm;
  float eps;
  float normFloor;
  float gateFactor;
  uint32_t present;  // a bit for each buffer
};
static_assert(sizeof(ValidateRuleParams) == 44, "ValidateRuleParams must match the declaration of validate_rule");
