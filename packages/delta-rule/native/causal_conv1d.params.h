// Generated from the declaration of causal_conv1d; `npm run gen` rewrites it.
#pragma once
#ifdef __METAL_VERSION__
#include <metal_stdlib>
#else
#include <stdint.h>
#include "cpu_kernel.h"
#endif

#define CAUSAL_CONV1D_X 0  // read
#define CAUSAL_CONV1D_WEIGHT 1  // read
#define CAUSAL_CONV1D_BIAS 2  // read?
#define CAUSAL_CONV1D_INITIAL_STATE 3  // read?
#define CAUSAL_CONV1D_CU_SEQLENS 4  // read?
#define CAUSAL_CONV1D_MASK 5  // read?
#define CAUSAL_CONV1D_Y 6  // write
#define CAUSAL_CONV1D_FINAL_STATE 7  // write?
#define CAUSAL_CONV1D_PARAMS 8
#define CAUSAL_CONV1D_FAULT 9
#define CAUSAL_CONV1D_HAS_BIAS 4u
#define CAUSAL_CONV1D_HAS_INITIAL_STATE 8u
#define CAUSAL_CONV1D_HAS_CU_SEQLENS 16u
#define CAUSAL_CONV1D_HAS_MASK 32u
#define CAUSAL_CONV1D_HAS_FINAL_STATE 128u
#define CAUSAL_CONV1D_FAULT_CU_SEQLENS 1
#ifdef __METAL_VERSION__
#define CAUSAL_CONV1D_CHANNELS_PER_THREAD 4
#define CAUSAL_CONV1D_TOKENS_PER_STEP 4
#else
#define CAUSAL_CONV1D_CHANNELS_PER_THREADGROUP 256
#endif

struct CausalConv1dParams {
  uint32_t sequences;
  uint32_t tokens;
  uint32_t channels;
  uint32_t kernelSize;
  uint32_t stateRows;
  uint32_t silu;
  uint32_t present;  // a bit for each buffer
#ifdef __METAL_VERSION__
  uint32_t tokensPerThreadgroup;
#else
  uint32_t tokensPerThreadgroup;
  uint32_t scratch[2];  // byte offsets
#endif
};
#ifdef __METAL_VERSION__
static_assert(sizeof(CausalConv1dParams) == 32, "CausalConv1dParams must match the declaration of causal_conv1d");
#else
static_assert(sizeof(CausalConv1dParams) == 40, "CausalConv1dParams must match the declaration of causal_conv1d");
#endif
#ifndef __METAL_VERSION__
struct CausalConv1dScratch {
  float* weights;
  float* bias;
};
inline CausalConv1dScratch scratch_of(const MlxtsCpuLaunch& l, const CausalConv1dParams& p) {
  unsigned char* memory = static_cast<unsigned char*>(l.scratch);
  return {
      reinterpret_cast<float*>(memory + p.scratch[0]),
      reinterpret_cast<float*>(memory + p.scratch[1]),
  };
}
#endif
