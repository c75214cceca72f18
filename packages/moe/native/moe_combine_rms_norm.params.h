// Generated from the declaration of moe_combine_rms_norm; `npm run gen` rewrites it.
#pragma once
#ifdef __METAL_VERSION__
#include <metal_stdlib>
#else
#include <stdint.h>
#endif

#define MOE_COMBINE_RMS_NORM_Y 0  // read
#define MOE_COMBINE_RMS_NORM_WEIGHTS 1  // read
#define MOE_COMBINE_RMS_NORM_ORDER 2  // read?
#define MOE_COMBINE_RMS_NORM_PLACES 3  // read?
#define MOE_COMBINE_RMS_NORM_SHARED 4  // read?
#define MOE_COMBINE_RMS_NORM_SHARED_GATE 5  // read?
#define MOE_COMBINE_RMS_NORM_RESIDUAL 6  // read?
#define MOE_COMBINE_RMS_NORM_NORM_WEIGHT 7  // read
#define MOE_COMBINE_RMS_NORM_SUM 8  // write
#define MOE_COMBINE_RMS_NORM_OUT 9  // write
#define MOE_COMBINE_RMS_NORM_PARAMS 10
#define MOE_COMBINE_RMS_NORM_FAULT 11
#define MOE_COMBINE_RMS_NORM_HAS_ORDER 4u
#define MOE_COMBINE_RMS_NORM_HAS_PLACES 8u
#define MOE_COMBINE_RMS_NORM_HAS_SHARED 16u
#define MOE_COMBINE_RMS_NORM_HAS_SHARED_GATE 32u
#define MOE_COMBINE_RMS_NORM_HAS_RESIDUAL 64u
#define MOE_COMBINE_RMS_NORM_FAULT_MISSING 1

struct MoeCombineRmsNormParams {
  uint32_t topK;
  uint32_t rows;
  uint32_t dim;
  float eps;
  float weightOffset;
  uint32_t roundBeforeWeight;
  uint32_t present;  // a bit for each buffer
#ifdef __METAL_VERSION__
  uint32_t scratch[1];  // byte offsets
#endif
};
#ifdef __METAL_VERSION__
static_assert(sizeof(MoeCombineRmsNormParams) == 32, "MoeCombineRmsNormParams must match the declaration of moe_combine_rms_norm");
#else
static_assert(sizeof(MoeCombineRmsNormParams) == 28, "MoeCombineRmsNormParams must match the declaration of moe_combine_rms_norm");
#endif
#ifdef __METAL_VERSION__
struct MoeCombineRmsNormScratch {
  threadgroup float* partial;
};
inline MoeCombineRmsNormScratch scratch_of(threadgroup uchar* memory, constant MoeCombineRmsNormParams& p) {
  return {
      (threadgroup float*)(memory + p.scratch[0]),
  };
}
#endif
