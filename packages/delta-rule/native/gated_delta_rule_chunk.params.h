// Generated from the declaration of gated_delta_rule_chunk; `npm run gen` rewrites it.
#pragma once
#ifdef __METAL_VERSION__
#include <metal_stdlib>
#else
#include <stdint.h>
#include "cpu_kernel.h"
#endif

#define GATED_DELTA_RULE_CHUNK_Q 0  // read
#define GATED_DELTA_RULE_CHUNK_K 1  // read
#define GATED_DELTA_RULE_CHUNK_V 2  // read
#define GATED_DELTA_RULE_CHUNK_G 3  // read
#define GATED_DELTA_RULE_CHUNK_BETA 4  // read
#define GATED_DELTA_RULE_CHUNK_INITIAL_STATE 5  // read?
#define GATED_DELTA_RULE_CHUNK_CU_SEQLENS 6  // read?
#define GATED_DELTA_RULE_CHUNK_MASK 7  // read?
#define GATED_DELTA_RULE_CHUNK_O 8  // write
#define GATED_DELTA_RULE_CHUNK_FINAL_STATE 9  // write?
#define GATED_DELTA_RULE_CHUNK_SNAPSHOTS 10  // write?
#define GATED_DELTA_RULE_CHUNK_PARAMS 11
#define GATED_DELTA_RULE_CHUNK_FAULT 12
#define GATED_DELTA_RULE_CHUNK_HAS_INITIAL_STATE 32u
#define GATED_DELTA_RULE_CHUNK_HAS_CU_SEQLENS 64u
#define GATED_DELTA_RULE_CHUNK_HAS_MASK 128u
#define GATED_DELTA_RULE_CHUNK_HAS_FINAL_STATE 512u
#define GATED_DELTA_RULE_CHUNK_HAS_SNAPSHOTS 1024u
#define GATED_DELTA_RULE_CHUNK_FAULT_CU_SEQLENS 1

struct GatedDeltaRuleChunkParams {
  uint32_t sequences;
  uint32_t tokens;
  uint32_t keyHeads;
  uint32_t headsPerKey;
  uint32_t heads;
  uint32_t keyDim;
  uint32_t valueDim;
  uint32_t chunkLength;
  uint32_t rowStride;
  uint32_t columnStride;
  uint32_t snapshotEvery;
  uint32_t lastTokens;
  uint32_t qkNorm;
  float eps;
  float normFloor;
  float gateFactor;
  float scale;
  uint32_t pair;
  uint32_t present;  // a bit for each buffer
  uint32_t scratch[1];  // byte offsets
};
static_assert(sizeof(GatedDeltaRuleChunkParams) == 80, "GatedDeltaRuleChunkParams must match the declaration of gated_delta_rule_chunk");
#ifdef __METAL_VERSION__
struct GatedDeltaRuleChunkScratch {
  threadgroup uchar* memory;
};
inline GatedDeltaRuleChunkScratch scratch_of(threadgroup uchar* memory, constant GatedDeltaRuleChunkParams& p) {
  return {
      (threadgroup uchar*)(memory + p.scratch[0]),
  };
}
#else
struct GatedDeltaRuleChunkScratch {
  uint8_t* memory;
};
inline GatedDeltaRuleChunkScratch scratch_of(const MlxtsCpuLaunch& l, const GatedDeltaRuleChunkParams& p) {
  unsigned char* memory = static_cast<unsigned char*>(l.scratch);
  return {
      reinterpret_cast<uint8_t*>(memory + p.scratch[0]),
  };
}
#endif
