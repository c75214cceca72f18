// Generated from the declaration of rms_norm_add; `npm run gen` rewrites it.
#pragma once
#ifdef __METAL_VERSION__
#include <metal_stdlib>
#else
#include <stdint.h>
#endif

#define RMS_NORM_ADD_X 0  // read
#define RMS_NORM_ADD_WEIGHT 1  // read
#define RMS_NORM_ADD_RESIDUAL 2  // read
#define RMS_NORM_ADD_OUT 3  // write
#define RMS_NORM_ADD_PARAMS 4

struct RmsNormAddParams {
  uint32_t rows;
  uint32_t dim;
  float eps;
  float weightOffset;
  uint32_t roundBeforeWeight;
#ifdef __METAL_VERSION__
  uint32_t scratch[1];  // byte offsets
#else
  uint32_t rowsPerThreadgroup;
#endif
};
static_assert(sizeof(RmsNormAddParams) == 24, "RmsNormAddParams must match the declaration of rms_norm_add");
#ifdef __METAL_VERSION__
struct RmsNormAddScratch {
  threadgroup float* partial;
};
inline RmsNormAddScratch scratch_of(threadgroup uchar* memory, constant RmsNormAddParams& p) {
  return {
      (threadgroup float*)(memory + p.scratch[0]),
  };
}
#endif
