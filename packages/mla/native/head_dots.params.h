// Generated from the declaration of head_dots; `npm run gen` rewrites it.
#pragma once
#ifdef __METAL_VERSION__
#include <metal_stdlib>
#else
#include <stdint.h>
#include "cpu_kernel.h"
#endif

#define HEAD_DOTS_X 0  // read
#define HEAD_DOTS_WEIGHT 1  // read
#define HEAD_DOTS_SCALES 2  // read?
#define HEAD_DOTS_BIASES 3  // read?
#define HEAD_DOTS_OUT 4  // write
#define HEAD_DOTS_PARAMS 5
#define HEAD_DOTS_HAS_SCALES 4u
#define HEAD_DOTS_HAS_BIASES 8u
#define HEAD_DOTS_TOKENS 8
#ifdef __METAL_VERSION__
#define HEAD_DOTS_SIMDGROUPS 4
#define HEAD_DOTS_SIMDGROUP_ROWS 4
#else
#define HEAD_DOTS_GROUP_ROWS 32
#define HEAD_DOTS_ROWS 4
#define HEAD_DOTS_GROUP_TOKENS 32
#endif

struct HeadDotsParams {
  uint32_t tokens;
  uint32_t heads;
  uint32_t n;
  uint32_t k;
  uint32_t xDim;
  uint32_t cols;
  uint32_t headRows;
  uint32_t firstRow;
  uint32_t groupSize;
  uint32_t present;  // a bit for each buffer
#ifndef __METAL_VERSION__
  uint32_t width;
  uint32_t scratch[2];  // byte offsets
#endif
};
#ifdef __METAL_VERSION__
static_assert(sizeof(HeadDotsParams) == 40, "HeadDotsParams must match the declaration of head_dots");
#else
static_assert(sizeof(HeadDotsParams) == 52, "HeadDotsParams must match the declaration of head_dots");
#endif
#ifndef __METAL_VERSION__
struct HeadDotsScratch {
  float* x;
  float* decoded;
};
inline HeadDotsScratch scratch_of(const MlxtsCpuLaunch& l, const HeadDotsParams& p) {
  unsigned char* memory = static_cast<unsigned char*>(l.scratch);
  return {
      reinterpret_cast<float*>(memory + p.scratch[0]),
      reinterpret_cast<float*>(memory + p.scratch[1]),
  };
}
#endif
