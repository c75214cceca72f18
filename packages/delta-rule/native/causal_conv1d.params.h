// Generated from the declaration of causal_conv1d; `npm run gen` rewrites it.
#pragma once
#ifdef __METAL_VERSION__
#include <metal_stdlib>
#else
#include <stdint.h>
#endif

#define CAUSAL_CONV1D_X 0  // read
#define CAUSAL_CONV1D_WEIGHT 1  // read
#define CAUSAL_CONV1D_BIAS 2  // read?
#define CAUSAL_CONV1D_STATE 3  // read?
#define CAUSAL_CONV1D_CU_SEQLENS 4  // read?
#define CAUSAL_CONV1D_MASK 5  // read?
#define CAUSAL_CONV1D_Y 6  // write
#define CAUSAL_CONV1D_NEW_STATE 7  // write?
#define CAUSAL_CONV1D_PARAMS 8
#define CAUSAL_CONV1D_FAULT 9
#define CAUSAL_CONV1D_HAS_BIAS 4u
#define CAUSAL_CONV1D_HAS_STATE 8u
#define CAUSAL_CONV1D_HAS_CU_SEQLENS 16u
#define CAUSAL_CONV1D_HAS_MASK 32u
#define CAUSAL_CONV1D_HAS_NEW_STATE 128u
#define CAUSAL_CONV1D_FAULT_CU_SEQLENS 1
#define CAUSAL_CONV1D_CHANNELS_PER_THREAD 4
#define CAUSAL_CONV1D_TOKENS_PER_STEP 4

struct CausalConv1dParams {
  uint32_t sequences;
  uint32_t tokens;
  uint32_t channels;
  uint32_t taps;
  uint32_t stateRows;
  uint32_t silu;
  uint32_t channelsPerThreadgroup;
  uint32_t tokensPerThreadgroup;
  uint32_t present;  // a bit for each buffer
};
static_assert(sizeof(CausalConv1dParams) == 36, "CausalConv1dParams must match the declaration of causal_conv1d");
