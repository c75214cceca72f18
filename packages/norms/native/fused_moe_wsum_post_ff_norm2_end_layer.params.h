// Generated from the declaration of fused_moe_wsum_post_ff_norm2_end_layer; `npm run gen` rewrites it.
#pragma once
#ifdef __METAL_VERSION__
#include <metal_stdlib>
#else
#include <stdint.h>
#include "cpu_kernel.h"
#endif

#define FUSED_MOE_WSUM_POST_FF_NORM2_END_LAYER_ATTN 0  // read
#define FUSED_MOE_WSUM_POST_FF_NORM2_END_LAYER_EXPERTS 1  // read
#define FUSED_MOE_WSUM_POST_FF_NORM2_END_LAYER_ROUTING 2  // read
#define FUSED_MOE_WSUM_POST_FF_NORM2_END_LAYER_RESIDUAL 3  // read
#define FUSED_MOE_WSUM_POST_FF_NORM2_END_LAYER_WEIGHT2 4  // read
#define FUSED_MOE_WSUM_POST_FF_NORM2_END_LAYER_WEIGHT3 5  // read
#define FUSED_MOE_WSUM_POST_FF_NORM2_END_LAYER_SCALE 6  // read
#define FUSED_MOE_WSUM_POST_FF_NORM2_END_LAYER_M 7  // write?
#define FUSED_MOE_WSUM_POST_FF_NORM2_END_LAYER_HIDDEN 8  // write
#define FUSED_MOE_WSUM_POST_FF_NORM2_END_LAYER_PARAMS 9
#define FUSED_MOE_WSUM_POST_FF_NORM2_END_LAYER_HAS_M 128u

struct FusedMoeWsumPostFfNorm2EndLayerParams {
  uint32_t rows;
  uint32_t dim;
  float eps;
  float weightOffset;
  uint32_t roundBeforeWeight;
  uint32_t f32Weights;
  uint32_t vectorScale;
  uint32_t topK;
  uint32_t present;  // a bit for each buffer
#ifdef __METAL_VERSION__
  uint32_t scratch[2];  // byte offsets
#else
  uint32_t rowsPerThreadgroup;
  uint32_t scratch[2];  // byte offsets
#endif
};
#ifdef __METAL_VERSION__
static_assert(sizeof(FusedMoeWsumPostFfNorm2EndLayerParams) == 44, "FusedMoeWsumPostFfNorm2EndLayerParams must match the declaration of fused_moe_wsum_post_ff_norm2_end_layer");
#else
static_assert(sizeof(FusedMoeWsumPostFfNorm2EndLayerParams) == 48, "FusedMoeWsumPostFfNorm2EndLayerParams must match the declaration of fused_moe_wsum_post_ff_norm2_end_layer");
#endif
#ifdef __METAL_VERSION__
struct FusedMoeWsumPostFfNorm2EndLayerScratch {
  threadgroup float* partial;
  threadgroup float* second;
};
inline FusedMoeWsumPostFfNorm2EndLayerScratch scratch_of(threadgroup uchar* memory, constant FusedMoeWsumPostFfNorm2EndLayerParams& p) {
  return {
      (threadgroup float*)(memory + p.scratch[0]),
      (threadgroup float*)(memory + p.scratch[1]),
  };
}
#else
struct FusedMoeWsumPostFfNorm2EndLayerScratch {
  float* x;
  float* m;
};
inline FusedMoeWsumPostFfNorm2EndLayerScratch scratch_of(const MlxtsCpuLaunch& l, const FusedMoeWsumPostFfNorm2EndLayerParams& p) {
  unsigned char* memory = static_cast<unsigned char*>(l.scratch);
  return {
      reinterpret_cast<float*>(memory + p.scratch[0]),
      reinterpret_cast<float*>(memory + p.scratch[1]),
  };
}
#endif
