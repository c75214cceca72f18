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
#define HEAD_MATMUL_SCALES 2  // read?
#define HEAD_MATMUL_BIASES 3  // read?
#define HEAD_MATMUL_LENGTHS 4  // read?
#define HEAD_MATMUL_OUT 5  // write
#define HEAD_MATMUL_PARAMS 6
#define HEAD_MATMUL_HAS_SCALES 4u
#define HEAD_MATMUL_HAS_BIASES 8u
#define HEAD_MATMUL_HAS_LENGTHS 16u
#ifdef __METAL_VERSION__
#define HEAD_MATMUL_THREADS 128
#define HEAD_MATMUL_ROWS 64
#define HEAD_MATMUL_COLUMNS 64
#define HEAD_MATMUL_DEPTH_BYTES 64
#else
#define HEAD_MATMUL_PANEL_ROWS 6
#define HEAD_MATMUL_GROUP_COLUMNS 64
#define HEAD_MATMUL_DEPTH 128
#define HEAD_MATMUL_TILE_ROWS 32
#define HEAD_MATMUL_TILE_COLUMNS 128
#endif

struct HeadMatmulParams {
  uint32_t batch;
  uint32_t tokens;
  uint32_t heads;
  uint32_t n;
  uint32_t k;
  uint32_t xDim;
  uint32_t cols;
  uint32_t headRows;
  uint32_t firstRow;
  uint32_t groupSize;
  uint32_t xHeads;
  uint32_t xRows;
  uint32_t firstToken;
  uint32_t transpose;
  uint32_t present;  // a bit for each buffer
#ifdef __METAL_VERSION__
  uint32_t scratch[3];  // byte offsets
#else
  uint32_t groupRows;
  uint32_t scratch[4];  // byte offsets
#endif
};
#ifdef __METAL_VERSION__
static_assert(sizeof(HeadMatmulParams) == 72, "HeadMatmulParams must match the declaration of head_matmul");
#else
static_assert(sizeof(HeadMatmulParams) == 80, "HeadMatmulParams must match the declaration of head_matmul");
#endif
#ifdef __METAL_VERSION__
struct HeadMatmulScratch {
  threadgroup uint* rows;
  threadgroup uchar* x;
  threadgroup uchar* weight;
};
inline HeadMatmulScratch scratch_of(threadgroup uchar* memory, constant HeadMatmulParams& p) {
  return {
      (threadgroup uint*)(memory + p.scratch[0]),
      (threadgroup uchar*)(memory + p.scratch[1]),
      (threadgroup uchar*)(memory + p.scratch[2]),
  };
}
#else
struct HeadMatmulScratch {
  float* panels;
  float* decoded;
  float* converted;
  float* sums;
};
inline HeadMatmulScratch scratch_of(const MlxtsCpuLaunch& l, const HeadMatmulParams& p) {
  unsigned char* memory = static_cast<unsigned char*>(l.scratch);
  return {
      reinterpret_cast<float*>(memory + p.scratch[0]),
      reinterpret_cast<float*>(memory + p.scratch[1]),
      reinterpret_cast<float*>(memory + p.scratch[2]),
      reinterpret_cast<float*>(memory + p.scratch[3]),
  };
}
#endif
