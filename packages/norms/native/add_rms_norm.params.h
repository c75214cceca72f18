// Generated from the declaration of add_rms_norm; `npm run gen` rewrites it.
#pragma once
#ifdef __METAL_VERSION__
#include <metal_stdlib>
#else
#include <stdint.h>
#endif

#define ADD_RMS_NORM_A 0  // read
#define ADD_RMS_NORM_B 1  // read
#define ADD_RMS_NORM_WEIGHT 2  // read
#define ADD_RMS_NORM_SUM 3  // write
#define ADD_RMS_NORM_OUT 4  // write
#define ADD_RMS_NORM_PARAMS 5

struct AddRmsNormParams {
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
static_assert(sizeof(AddRmsNormParams) == 24, "AddRmsNormParams must match the declaration of add_rms_norm");
#ifdef __METAL_VERSION__
struct AddRmsNormScratch {
  threadgroup float* partial;
};
inline AddRmsNormScratch scratch_of(threadgroup uchar* memory, constant AddRmsNormParams& p) {
  return {
      (threadgroup float*)(memory + p.scratch[0]),
  };
}
#endif
