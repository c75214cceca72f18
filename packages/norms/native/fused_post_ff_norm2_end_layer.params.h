// Generated from the declaration of fused_post_ff_norm2_end_layer; `npm run gen` rewrites it.
#pragma once
#ifdef __METAL_VERSION__
#include <metal_stdlib>
#else
#include <stdint.h>
#include "cpu_kernel.h"
#endif

#define FUSED_POST_FF_NORM2_END_LAYER_ATTN 0  // read
#define FUSED_POST_FF_NORM2_END_LAYER_X 1  // read
#define FUSED_POST_FF_NORM2_END_LAYER_RESIDUAL 2  // read
#define FUSED_POST_FF_NORM2_END_LAYER_WEIGHT2 3  // read
#define FUSED_POST_FF_NORM2_END_LAYER_WEIGHT3 4  // read
#define FUSED_POST_FF_NORM2_END_LAYER_SCALE 5  // read
#define FUSED_POST_FF_NORM2_END_LAYER_M 6  // write?
#define FUSED_POST_FF_NORM2_END_LAYER_HIDDEN 7  // write
#define FUSED_POST_FF_NORM2_END_LAYER_PARAMS 8
#define FUSED_POST_FF_NORM2_END_LAYER_HAS_M 64u

struct FusedPostFfNorm2EndLayerParams {
  uint32_t rows;
  uint32_t dim;
  float eps;
  float weightOffset;
  uint32_t roundBeforeWeight;
  uint32_t f32Weights;
  uint32_t vectorScale;
  uint32_t present;  // a bit for each buffer
#ifdef __METAL_VERSION__
  uint32_t scratch[2];  // byte offsets
#else
  uint32_t rowsPerThreadgroup;
  uint32_t scratch[1];  // byte offsets
#endif
};
static_assert(sizeof(FusedPostFfNorm2EndLayerParams) == 40, "FusedPostFfNorm2EndLayerParams must match the declaration of fused_post_ff_norm2_end_layer");
#ifdef __METAL_VERSION__
struct FusedPostFfNorm2EndLayerScratch {
  threadgroup float* partial;
  threadgroup float* second;
};
inline FusedPostFfNorm2EndLayerScratch scratch_of(threadgroup uchar* memory, constant FusedPostFfNorm2EndLayerParams& p) {
  return {
      (threadgroup float*)(memory + p.scratch[0]),
      (threadgroup float*)(memory + p.scratch[1]),
  };
}
#else
struct FusedPostFfNorm2EndLayerScratch {
  float* m;
};
inline FusedPostFfNorm2EndLayerScratch scratch_of(const MlxtsCpuLaunch& l, const FusedPostFfNorm2EndLayerParams& p) {
  unsigned char* memory = static_cast<unsigned char*>(l.scratch);
  return {
      reinterpret_cast<float*>(memory + p.scratch[0]),
  };
}
#endif
