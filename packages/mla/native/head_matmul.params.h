// Generated from the declaration of head_matmul; `npm run gen` rewrites it.
#pragma once
#ifdef __METAL_VERSION__
#include <metal_stdlib>
#else
#include <stdint.h>
#include "cpu_kernel.h"
#endif

#define HEAD_MATMUL_X 0  // read
#define HEAD_MATMUL_WEIGHT 1  // read
#define HEAD_MATMUL_OUT 2  // write
#define HEAD_MATMUL_PARAMS 3
#ifdef __METAL_VERSION__
#define HEAD_MATMUL_THREADS 128
#define HEAD_MATMUL_ROWS 64
#define HEAD_MATMUL_COLUMNS 64
#define HEAD_MATMUL_DEPTH_BYTES 64
#else
#define HEAD_MATMUL_PANEL_ROWS 6
#define HEAD_MATMUL_GROUP_COLUMNS 64
#define HEAD_MATMUL_DEPTH 128
#endif

struct HeadMatmulParams {
  uint32_t tokens;
  uint32_t heads;
  uint32_t n;
  uint32_t k;
  uint32_t xDim;
  uint32_t rank;
  uint32_t headRows;
  uint32_t firstRow;
  uint32_t transpose;
#ifdef __METAL_VERSION__
  uint32_t scratch[2];  // byte offsets
#else
  uint32_t groupRows;
  uint32_t scratch[3];  // byte offsets
#endif
};
#ifdef __METAL_VERSION__
static_assert(sizeof(HeadMatmulParams) == 44, "HeadMatmulParams must match the declaration of head_matmul");
#else
static_assert(sizeof(HeadMatmulParams) == 52, "HeadMatmulParams must match the declaration of head_matmul");
#endif
#ifdef __METAL_VERSION__
struct HeadMatmulScratch {
  threadgroup uchar* x;
  threadgroup uchar* weight;
};
inline HeadMatmulScratch scratch_of(threadgroup uchar* memory, constant HeadMatmulParams& p) {
  return {
      (threadgroup uchar*)(memory + p.scratch[0]),
      (threadgroup uchar*)(memory + p.scratch[1]),
  };
}
#else
struct HeadMatmulScratch {
  float* panels;
  float* converted;
  float* sums;
};
inline HeadMatmulScratch scratch_of(const MlxtsCpuLaunch& l, const HeadMatmulParams& p) {
  unsigned char* memory = static_cast<unsigned char*>(l.scratch);
  return {
      reinterpret_cast<float*>(memory + p.scratch[0]),
      reinterpret_cast<float*>(memory + p.scratch[1]),
      reinterpret_cast<float*>(memory + p.scratch[2]),
  };
}
#endif
