// Generated from the declaration of rms_norm_mul; `npm run gen` rewrites it.
#pragma once
#ifdef __METAL_VERSION__
#include <metal_stdlib>
#else
#include <stdint.h>
#endif

#define RMS_NORM_MUL_X 0  // read
#define RMS_NORM_MUL_WEIGHT 1  // read
#define RMS_NORM_MUL_FACTOR 2  // read
#define RMS_NORM_MUL_OUT 3  // write
#define RMS_NORM_MUL_PARAMS 4

struct RmsNormMulParams {
  uint32_t rows;
  uint32_t dim;
  float eps;
  float weightOffset;
  uint32_t roundBeforeWeight;
  uint32_t roundIntermediate;
#ifdef __METAL_VERSION__
  uint32_t scratch[1];  // byte offsets
#else
  uint32_t rowsPerThreadgroup;
#endif
};
static_assert(sizeof(RmsNormMulParams) == 28, "RmsNormMulParams must match the declaration of rms_norm_mul");
#ifdef __METAL_VERSION__
struct RmsNormMulScratch {
  threadgroup float* partial;
};
inline RmsNormMulScratch scratch_of(threadgroup uchar* memory, constant RmsNormMulParams& p) {
  return {
      (threadgroup float*)(memory + p.scratch[0]),
  };
}
#endif
