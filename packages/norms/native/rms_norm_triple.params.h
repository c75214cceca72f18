// Generated from the declaration of rms_norm_triple; `npm run gen` rewrites it.
#pragma once
#ifdef __METAL_VERSION__
#include <metal_stdlib>
#else
#include <stdint.h>
#endif

#define RMS_NORM_TRIPLE_X 0  // read
#define RMS_NORM_TRIPLE_WEIGHT_A 1  // read
#define RMS_NORM_TRIPLE_WEIGHT_B 2  // read
#define RMS_NORM_TRIPLE_WEIGHT_C 3  // read
#define RMS_NORM_TRIPLE_OUT_A 4  // write
#define RMS_NORM_TRIPLE_OUT_B 5  // write
#define RMS_NORM_TRIPLE_OUT_C 6  // write
#define RMS_NORM_TRIPLE_PARAMS 7

struct RmsNormTripleParams {
  uint32_t rows;
  uint32_t dim;
  float eps;
  float weightOffset;
  uint32_t roundBeforeWeight;
  uint32_t f32Weights;
#ifdef __METAL_VERSION__
  uint32_t scratch[1];  // byte offsets
#else
  uint32_t rowsPerThreadgroup;
#endif
};
static_assert(sizeof(RmsNormTripleParams) == 28, "RmsNormTripleParams must match the declaration of rms_norm_triple");
#ifdef __METAL_VERSION__
struct RmsNormTripleScratch {
  threadgroup float* partial;
};
inline RmsNormTripleScratch scratch_of(threadgroup uchar* memory, constant RmsNormTripleParams& p) {
  return {
      (threadgroup float*)(memory + p.scratch[0]),
  };
}
#endif
