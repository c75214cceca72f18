// Generated from the declaration of rms_norm_no_scale; `npm run gen` rewrites it.
#pragma once
#ifdef __METAL_VERSION__
#include <metal_stdlib>
#else
#include <stdint.h>
#endif

#define RMS_NORM_NO_SCALE_X 0  // read
#define RMS_NORM_NO_SCALE_OUT 1  // write
#define RMS_NORM_NO_SCALE_PARAMS 2

struct RmsNormNoScaleParams {
  uint32_t rows;
  uint32_t dim;
  float eps;
#ifdef __METAL_VERSION__
  uint32_t scratch[1];  // byte offsets
#else
  uint32_t rowsPerThreadgroup;
#endif
};
static_assert(sizeof(RmsNormNoScaleParams) == 16, "RmsNormNoScaleParams must match the declaration of rms_norm_no_scale");
#ifdef __METAL_VERSION__
struct RmsNormNoScaleScratch {
  threadgroup float* partial;
};
inline RmsNormNoScaleScratch scratch_of(threadgroup uchar* memory, constant RmsNormNoScaleParams& p) {
  return {
      (threadgroup float*)(memory + p.scratch[0]),
  };
}
#endif
