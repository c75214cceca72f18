// Generated from the declaration of gated_delta_rollback; `npm run gen` rewrites it.
#pragma once
#ifdef __METAL_VERSION__
#include <metal_stdlib>
#else
#include <stdint.h>
#include "cpu_kernel.h"
#endif

#define GATED_DELTA_ROLLBACK_LOG_STATE 0  // read
#define GATED_DELTA_ROLLBACK_LOG_KEYS 1  // read
#define GATED_DELTA_ROLLBACK_LOG_DELTAS 2  // read
#define GATED_DELTA_ROLLBACK_LOG_GATES 3  // read
#define GATED_DELTA_ROLLBACK_REJECTED 4  // read
#define GATED_DELTA_ROLLBACK_FINAL_STATE 5  // write
#define GATED_DELTA_ROLLBACK_PARAMS 6
#define GATED_DELTA_ROLLBACK_FAULT 7
#define GATED_DELTA_ROLLBACK_FAULT_REJECTED 1
#ifdef __METAL_VERSION__
#define GATED_DELTA_ROLLBACK_ROWS_PER_SIMDGROUP 4
#define GATED_DELTA_ROLLBACK_SIMDGROUPS 4
#else
#define GATED_DELTA_ROLLBACK_ROWS_PER_THREADGROUP 32
#endif

struct GatedDeltaRollbackParams {
  uint32_t sequences;
  uint32_t lastTokens;
  uint32_t keyHeads;
  uint32_t headsPerKey;
  uint32_t heads;
  uint32_t keyDim;
  uint32_t valueDim;
  uint32_t rowStride;
  uint32_t columnStride;
  float gateFactor;
#ifndef __METAL_VERSION__
  uint32_t scratch[3];  // byte offsets
#endif
};
#ifdef __METAL_VERSION__
static_assert(sizeof(GatedDeltaRollbackParams) == 40, "GatedDeltaRollbackParams must match the declaration of gated_delta_rollback");
#else
static_assert(sizeof(GatedDeltaRollbackParams) == 52, "GatedDeltaRollbackParams must match the declaration of gated_delta_rollback");
#endif
#ifndef __METAL_VERSION__
struct GatedDeltaRollbackScratch {
  float* key;
  float* decays;
  float* state;
};
inline GatedDeltaRollbackScratch scratch_of(const MlxtsCpuLaunch& l, const GatedDeltaRollbackParams& p) {
  unsigned char* memory = static_cast<unsigned char*>(l.scratch);
  return {
      reinterpret_cast<float*>(memory + p.scratch[0]),
      reinterpret_cast<float*>(memory + p.scratch[1]),
      reinterpret_cast<float*>(memory + p.scratch[2]),
  };
}
#endif
