// Generated from the declaration of gated_delta_rule_recurrent; `npm run gen` rewrites it.
#pragma once
#ifdef __METAL_VERSION__
#include <metal_stdlib>
#else
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
#define GATED_DELTA_RULE_RECURRENT_HAS_INITIAL_STATE 32u
#define GATED_DELTA_RULE_RECURRENT_HAS_FINAL_STATE 128u
#define GATED_DELTA_RULE_RECURRENT_ROWS_PER_SIMDGROUP 4

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
  uint32_t present;  // a bit for each buffer
};
static_assert(sizeof(GatedDeltaRuleRecurrentParams) == 40, "GatedDeltaRuleRecurrentParams must match the declaration of gated_delta_rule_recurrent");
