// Generated from the declaration of fused_post_attn_triple_norm; `npm run gen` rewrites it.
#pragma once
#ifdef __METAL_VERSION__
#include <metal_stdlib>
#else
#include <stdint.h>
#include "cpu_kernel.h"
#endif

#define FUSED_POST_ATTN_TRIPLE_NORM_HIDDEN 0  // read
#define FUSED_POST_ATTN_TRIPLE_NORM_ATTN 1  // read
#define FUSED_POST_ATTN_TRIPLE_NORM_WEIGHT_POST 2  // read
#define FUSED_POST_ATTN_TRIPLE_NORM_WEIGHT_A 3  // read
#define FUSED_POST_ATTN_TRIPLE_NORM_WEIGHT_B 4  // read
#define FUSED_POST_ATTN_TRIPLE_NORM_WEIGHT_C 5  // read
#define FUSED_POST_ATTN_TRIPLE_NORM_RES 6  // write?
#define FUSED_POST_ATTN_TRIPLE_NORM_OUT_A 7  // write
#define FUSED_POST_ATTN_TRIPLE_NORM_OUT_B 8  // write
#define FUSED_POST_ATTN_TRIPLE_NORM_OUT_C 9  // write
#define FUSED_POST_ATTN_TRIPLE_NORM_PARAMS 10
#define FUSED_POST_ATTN_TRIPLE_NORM_HAS_RES 64u

struct FusedPostAttnTripleNormParams {
  uint32_t rows;
  uint32_t dim;
  float eps;
  float weightOffset;
  uint32_t roundBeforeWeight;
  uint32_t f32Weights;
  uint32_t present;  // a bit for each buffer
#ifdef __METAL_VERSION__
  uint32_t scratch[2];  // byte offsets
#else
  uint32_t rowsPerThreadgroup;
  uint32_t scratch[1];  // byte offsets
#endif
};
static_assert(sizeof(FusedPostAttnTripleNormParams) == 36, "FusedPostAttnTripleNormParams must match the declaration of fused_post_attn_triple_norm");
#ifdef __METAL_VERSION__
struct FusedPostAttnTripleNormScratch {
  threadgroup float* partial;
  threadgroup float* second;
};
inline FusedPostAttnTripleNormScratch scratch_of(threadgroup uchar* memory, constant FusedPostAttnTripleNormParams& p) {
  return {
      (threadgroup float*)(memory + p.scratch[0]),
      (threadgroup float*)(memory + p.scratch[1]),
  };
}
#else
struct FusedPostAttnTripleNormScratch {
  float* res;
};
inline FusedPostAttnTripleNormScratch scratch_of(const MlxtsCpuLaunch& l, const FusedPostAttnTripleNormParams& p) {
  unsigned char* memory = static_cast<unsigned char*>(l.scratch);
  return {
      reinterpret_cast<float*>(memory + p.scratch[0]),
  };
}
#endif
