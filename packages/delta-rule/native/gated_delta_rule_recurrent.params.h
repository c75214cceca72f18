// Generated from the declaration of gated_delta_rule_recurrent; `npm run gen` rewrites it.
#pragma once
#ifdef __METAL_VERSION__
#include <metal_stdlib>
#else
#include <stdint.h>
#include "cpu_kernel.h"
#endif

#define GATED_DELTA_RULE_RECURRENT_Q 0  // read
#define GATED_DELTA_RULE_RECURRENT_K 1  // read
#define GATED_DELTA_RULE_RECURRENT_V 2  // read
#define GATED_DELTA_RULE_RECURRENT_G 3  // read
#define GATED_DELTA_RULE_RECURRENT_BETA 4  // read
#define GATED_DELTA_RULE_RECURRENT_INITIAL_STATE 5  // read?
#define GATED_DELTA_RULE_RECURRENT_CU_SEQLENS 6  // read?
#define GATED_DELTA_RULE_RECURRENT_MASK 7  // read?
#define GATED_DELTA_RULE_RECURRENT_O 8  // write
#define GATED_DELTA_RULE_RECURRENT_FINAL_STATE 9  // write?
#define GATED_DELTA_RULE_RECURRENT_SNAPSHOTS 10  // write?
#define GATED_DELTA_RULE_RECURRENT_LAST_STATES 11  // write?
#define GATED_DELTA_RULE_RECURRENT_LOG_STATE 12  // write?
#define GATED_DELTA_RULE_RECURRENT_LOG_KEYS 13  // write?
#define GATED_DELTA_RULE_RECURRENT_LOG_DELTAS 14  // write?
#define GATED_DELTA_RULE_RECURRENT_LOG_GATES 15  // write?
#define GATED_DELTA_RULE_RECURRENT_A_LOG 16  // read?
#define GATED_DELTA_RULE_RECURRENT_DT_BIAS 17  // read?
#define GATED_DELTA_RULE_RECURRENT_PARAMS 18
#define GATED_DELTA_RULE_RECURRENT_FAULT 19
#define GATED_DELTA_RULE_RECURRENT_HAS_INITIAL_STATE 32u
#define GATED_DELTA_RULE_RECURRENT_HAS_CU_SEQLENS 64u
#define GATED_DELTA_RULE_RECURRENT_HAS_MASK 128u
#define GATED_DELTA_RULE_RECURRENT_HAS_FINAL_STATE 512u
#define GATED_DELTA_RULE_RECURRENT_HAS_SNAPSHOTS 1024u
#define GATED_DELTA_RULE_RECURRENT_HAS_LAST_STATES 2048u
#define GATED_DELTA_RULE_RECURRENT_HAS_LOG_STATE 4096u
#define GATED_DELTA_RULE_RECURRENT_HAS_LOG_KEYS 8192u
#define GATED_DELTA_RULE_RECURRENT_HAS_LOG_DELTAS 16384u
#define GATED_DELTA_RULE_RECURRENT_HAS_LOG_GATES 32768u
#define GATED_DELTA_RULE_RECURRENT_HAS_A_LOG 65536u
#define GATED_DELTA_RULE_RECURRENT_HAS_DT_BIAS 131072u
#define GATED_DELTA_RULE_RECURRENT_FAULT_CU_SEQLENS 1
#ifdef __METAL_VERSION__
#define GATED_DELTA_RULE_RECURRENT_ROWS_PER_SIMDGROUP 4
#define GATED_DELTA_RULE_RECURRENT_SIMDGROUPS 4
#else
#define GATED_DELTA_RULE_RECURRENT_ROWS_PER_THREADGROUP 32
#endif

struct GatedDeltaRuleRecurrentParams {
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
  float betaScale;
  float lowerBound;
  uint32_t present;  // a bit for each buffer
#ifndef __METAL_VERSION__
  uint32_t scratch[7];  // byte offsets
#endif
};
#ifdef __METAL_VERSION__
static_assert(sizeof(GatedDeltaRuleRecurrentParams) == 80, "GatedDeltaRuleRecurrentParams must match the declaration of gated_delta_rule_recurrent");
#else
static_assert(sizeof(GatedDeltaRuleRecurrentParams) == 108, "GatedDeltaRuleRecurrentParams must match the declaration of gated_delta_rule_recurrent");
#endif
#ifndef __METAL_VERSION__
struct GatedDeltaRuleRecurrentScratch {
  float* key;
  float* query;
  float* decays;
  float* values;
  float* outputs;
  float* deltas;
  float* state;
};
inline GatedDeltaRuleRecurrentScratch scratch_of(const MlxtsCpuLaunch& l, const GatedDeltaRuleRecurrentParams& p) {
  unsigned char* memory = static_cast<unsigned char*>(l.scratch);
  return {
      reinterpret_cast<float*>(memory + p.scratch[0]),
      reinterpret_cast<float*>(memory + p.scratch[1]),
      reinterpret_cast<float*>(memory + p.scratch[2]),
      reinterpret_cast<float*>(memory + p.scratch[3]),
      reinterpret_cast<float*>(memory + p.scratch[4]),
      reinterpret_cast<float*>(memory + p.scratch[5]),
      reinterpret_cast<float*>(memory + p.scratch[6]),
  };
}
#endif
