// Generated from the declaration of gated_delta_rule_recurrent; `npm run gen` rewrites it.
#pragma once
#ifndef __METAL_VERSION__
#include <stdint.h>
#endif

#define GATED_DELTA_RULE_RECURRENT_Q 0  // read
#define GATED_DELTA_RULE_RECURRENT_K 1  // read
#define GATED_DELTA_RULE_RECURRENT_V 2  // read
#define GATED_DELTA_RULE_RECURRENT_G 3  // read
#define GATED_DELTA_RULE_RECURRENT_BETA 4  // read
#define GATED_DELTA_RULE_RECURRENT_INITIAL_STATE 5  // read?
#define GATED_DELTA_RULE_RECURRENT_O 6  // write
#define GATED_DELTA_RULE_RECURRENT_FINAL_STATE 7  // write?
#define GATED_DELTA_RULE_RECURRENT_PARAMS 8

struct GatedDeltaRuleRecurrentParams {
  uint32_t tokens;
  uint32_t keyHeads;
  uint32_t heads;
  uint32_t keyDim;
  uint32_t valueDim;
  uint32_t rowsPerThreadgroup;
  uint32_t qkNorm;
  float eps;
  float scale;
};
static_assert(sizeof(GatedDeltaRuleRecurrentParams) == 36, "GatedDeltaRuleRecurrentParams must match the declaration of gated_delta_rule_recurrent");
