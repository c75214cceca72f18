// Generated from the declaration of rms_norm; `npm run gen` rewrites it.
#pragma once
#ifdef __METAL_VERSION__
#include <metal_stdlib>
#else
#include <stdint.h>
#endif

#define RMS_NORM_X 0  // read
#define RMS_NORM_WEIGHT 1  // read
#define RMS_NORM_OUT 2  // write
#define RMS_NORM_PARAMS 3

struct RmsNormParams {
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
static_assert(sizeof(RmsNormParams) == 24, "RmsNormParams must match the declaration of rms_norm");
#ifdef __METAL_VERSION__
struct RmsNormScratch {
  threadgroup float* partial;
};
inline RmsNormScratch scratch_of(threadgroup uchar* memory, constant RmsNormParams& p) {
  return {
      (threadgroup float*)(memory + p.scratch[0]),
  };
}
#endif
