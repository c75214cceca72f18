// Generated from the declaration of gated_rms_norm; `npm run gen` rewrites it.
#pragma once
#ifdef __METAL_VERSION__
#include <metal_stdlib>
#else
#include <stdint.h>
#endif

#define GATED_RMS_NORM_X 0  // read
#define GATED_RMS_NORM_Z 1  // read
#define GATED_RMS_NORM_WEIGHT 2  // read
#define GATED_RMS_NORM_OUT 3  // write
#define GATED_RMS_NORM_PARAMS 4

struct GatedRmsNormParams {
  uint32_t rows;
  uint32_t dim;
  float eps;
  float weightOffset;
  uint32_t roundBeforeWeight;
  uint32_t sigmoidGate;
  uint32_t gateFirst;
#ifdef __METAL_VERSION__
  uint32_t scratch[1];  // byte offsets
#else
  uint32_t rowsPerThreadgroup;
#endif
};
static_assert(sizeof(GatedRmsNormParams) == 32, "GatedRmsNormParams must match the declaration of gated_rms_norm");
#ifdef __METAL_VERSION__
struct GatedRmsNormScratch {
  threadgroup float* partial;
};
inline GatedRmsNormScratch scratch_of(threadgroup uchar* memory, constant GatedRmsNormParams& p) {
  return {
      (threadgroup float*)(memory + p.scratch[0]),
  };
}
#endif
