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
#define CAUSAL_CONV1D_CHANNELS_PER_THREAD 4
#define CAUSAL_CONV1D_TOKENS_PER_STEP 4

struct CausalConv1dParams {
  uint32_t sequences;
  uint32_t tokens;
  uint32_t channels;
  uint32_t kernelSize;
  uint32_t stateRows;
  uint32_t silu;
  uint32_t channelsPerThreadgroup;
  uint32_t tokensPerThreadgroup;
  uint32_t present;  // a bit for each buffer
  uint32_t scratch[1];  // byte offsets
};
static_assert(sizeof(CausalConv1dParams) == 40, "CausalConv1dParams must match the declaration of causal_conv1d");
#ifdef __METAL_VERSION__
struct CausalConv1dScratch {
  threadgroup uchar* memory;
};
inline CausalConv1dScratch scratch_of(threadgroup uchar* memory, constant CausalConv1dParams& p) {
  return {
      (threadgroup uchar*)(memory + p.scratch[0]),
  };
}
#else
struct CausalConv1dScratch {
  uint8_t* memory;
};
inline CausalConv1dScratch scratch_of(const MlxtsCpuLaunch& l, const CausalConv1dParams& p) {
  unsigned char* memory = static_cast<unsigned char*>(l.scratch);
  return {
      reinterpret_cast<uint8_t*>(memory + p.scratch[0]),
  };
}
#endif
