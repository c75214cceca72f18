// Generated from the declaration of gated_delta_rule_chunk; `npm run gen` rewrites it.
#pragma once
#ifdef __METAL_VERSION__
#include <metal_stdlib>
#else
#include <stdint.h>
#endif

#define GATED_DELTA_RULE_CHUNK_Q 0  // read
#define GATED_DELTA_RULE_CHUNK_K 1  // read
#define GATED_DELTA_RULE_CHUNK_V 2  // read
#define GATED_DELTA_RULE_CHUNK_G 3  // read
#define GATED_DELTA_RULE_CHUNK_BETA 4  // read
#define GATED_DELTA_RULE_CHUNK_INITIAL_STATE 5  // read?
#define GATED_DELTA_RULE_CHUNK_O 6  // write
#define GATED_DELTA_RULE_CHUNK_FINAL_STATE 7  // write?
#define GATED_DELTA_RULE_CHUNK_PARAMS 8
#define GATED_DELTA_RULE_CHUNK_HAS_INITIAL_STATE 32u
#define GATED_DELTA_RULE_CHUNK_HAS_FINAL_STATE 128u

struct GatedDeltaRuleChunkParams {
  uint32_t tokens;
  uint32_t keyHeads;
  uint32_t heads;
  uint32_t keyDim;
  uint32_t valueDim;
  uint32_t chunkLength;
  uint32_t pair;
  uint32_t qkNorm;
  float eps;
  float scale;
  uint32_t present;  // a bit for each buffer
};
static_assert(sizeof(GatedDeltaRuleChunkParams) == 44, "GatedDeltaRuleChunkParams must match the declaration of gated_delta_rule_chunk");
