// Generated from the declaration of gated_delta_rule_chunk; `npm run gen` rewrites it.
#pragma once
#ifdef __METAL_VERSION__
#include <metal_stdlib>
#else
#include <stdint.h>
#include "cpu_kernel.h"
#include "simd.h"
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
#ifndef __METAL_VERSION__
#define GATED_DELTA_RULE_CHUNK_PANEL_VALUES 64
#endif

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
  uint32_t carriesLow;
  uint32_t present;  // a bit for each buffer
#ifndef __METAL_VERSION__
  uint32_t keyStride;
  uint32_t scratch[31];  // byte offsets
#endif
};
#ifdef __METAL_VERSION__
static_assert(sizeof(GatedDeltaRuleChunkParams) == 76, "GatedDeltaRuleChunkParams must match the declaration of gated_delta_rule_chunk");
#else
static_assert(sizeof(GatedDeltaRuleChunkParams) == 204, "GatedDeltaRuleChunkParams must match the declaration of gated_delta_rule_chunk");
#endif
#ifndef __METAL_VERSION__
struct GatedDeltaRuleChunkScratch {
  float* state;
  float* queries;
  float* keys;
  float* transposedKeys;
  float* weightedKeys;
  float* w;
  float* a;
  float* inverse;
  float* scores;
  float* weightedValues;
  float* vNew;
  float* gated;
  float* roundedState;
  float* betas;
  float* factors;
  float* decays;
  float* decaysToEnd;
  float* stateDecays;
  float* decayedQueries;
  float* decayedKeys;
  float* steps;
  float* cumulativeGateHigh;
  float* cumulativeGateLow;
  mlxts::bf16* queriesBf16;
  mlxts::bf16* leftKeysBf16;
  mlxts::bf16* transposedKeysBf16;
  mlxts::bf16* keysBf16;
  mlxts::bf16* inverseBf16;
  mlxts::bf16* scoresBf16;
  mlxts::bf16* rightBf16;
  mlxts::bf16* stateBf16;
};
inline GatedDeltaRuleChunkScratch scratch_of(const MlxtsCpuLaunch& l, const GatedDeltaRuleChunkParams& p) {
  unsigned char* memory = static_cast<unsigned char*>(l.scratch);
  return {
      reinterpret_cast<float*>(memory + p.scratch[0]),
      reinterpret_cast<float*>(memory + p.scratch[1]),
      reinterpret_cast<float*>(memory + p.scratch[2]),
      reinterpret_cast<float*>(memory + p.scratch[3]),
      reinterpret_cast<float*>(memory + p.scratch[4]),
      reinterpret_cast<float*>(memory + p.scratch[5]),
      reinterpret_cast<float*>(memory + p.scratch[6]),
      reinterpret_cast<float*>(memory + p.scratch[7]),
      reinterpret_cast<float*>(memory + p.scratch[8]),
      reinterpret_cast<float*>(memory + p.scratch[9]),
      reinterpret_cast<float*>(memory + p.scratch[10]),
      reinterpret_cast<float*>(memory + p.scratch[11]),
      reinterpret_cast<float*>(memory + p.scratch[12]),
      reinterpret_cast<float*>(memory + p.scratch[13]),
      reinterpret_cast<float*>(memory + p.scratch[14]),
      reinterpret_cast<float*>(memory + p.scratch[15]),
      reinterpret_cast<float*>(memory + p.scratch[16]),
      reinterpret_cast<float*>(memory + p.scratch[17]),
      reinterpret_cast<float*>(memory + p.scratch[18]),
      reinterpret_cast<float*>(memory + p.scratch[19]),
      reinterpret_cast<float*>(memory + p.scratch[20]),
      reinterpret_cast<float*>(memory + p.scratch[21]),
      reinterpret_cast<float*>(memory + p.scratch[22]),
      reinterpret_cast<mlxts::bf16*>(memory + p.scratch[23]),
      reinterpret_cast<mlxts::bf16*>(memory + p.scratch[24]),
      reinterpret_cast<mlxts::bf16*>(memory + p.scratch[25]),
      reinterpret_cast<mlxts::bf16*>(memory + p.scratch[26]),
      reinterpret_cast<mlxts::bf16*>(memory + p.scratch[27]),
      reinterpret_cast<mlxts::bf16*>(memory + p.scratch[28]),
      reinterpret_cast<mlxts::bf16*>(memory + p.scratch[29]),
      reinterpret_cast<mlxts::bf16*>(memory + p.scratch[30]),
  };
}
#endif
