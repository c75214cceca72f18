// Generated from the declaration of rms_norm_no_scale_dual; `npm run gen` rewrites it.
#pragma once
#ifdef __METAL_VERSION__
#include <metal_stdlib>
#else
#include <stdint.h>
#endif

#define RMS_NORM_NO_SCALE_DUAL_X 0  // read
#define RMS_NORM_NO_SCALE_DUAL_OUT 1  // write
#define RMS_NORM_NO_SCALE_DUAL_OUT16 2  // write
#define RMS_NORM_NO_SCALE_DUAL_PARAMS 3

struct RmsNormNoScaleDualParams {
  uint32_t rows;
  uint32_t dim;
  float eps;
  uint32_t heads;
#ifdef __METAL_VERSION__
  uint32_t scratch[1];  // byte offsets
#else
  uint32_t rowsPerThreadgroup;
#endif
};
static_assert(sizeof(RmsNormNoScaleDualParams) == 20, "RmsNormNoScaleDualParams must match the declaration of rms_norm_no_scale_dual");
#ifdef __METAL_VERSION__
struct RmsNormNoScaleDualScratch {
  threadgroup float* partial;
};
inline RmsNormNoScaleDualScratch scratch_of(threadgroup uchar* memory, constant RmsNormNoScaleDualParams& p) {
  return {
      (threadgroup float*)(memory + p.scratch[0]),
  };
}
#endif
