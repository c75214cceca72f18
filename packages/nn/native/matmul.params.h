// Generated from the declaration of matmul; `npm run gen` rewrites it.
#pragma once
#ifdef __METAL_VERSION__
#include <metal_stdlib>
#else
#include <stdint.h>
#include "cpu_kernel.h"
#endif

#define MATMUL_X 0  // read
#define MATMUL_WEIGHT 1  // read
#define MATMUL_BIAS 2  // read?
#define MATMUL_OUT 3  // write
#define MATMUL_PARAMS 4
#define MATMUL_HAS_BIAS 4u
#ifdef __METAL_VERSION__
#define MATMUL_THREADS 128
#define MATMUL_ROWS 64
#define MATMUL_COLUMNS 64
#define MATMUL_PART_ROWS 32
#define MATMUL_PART_COLUMNS 32
#define MATMUL_DEPTH_BYTES 64
#define MATMUL_WARPGROUP_THREADS 384
#define MATMUL_WARPGROUP_ROWS 128
#define MATMUL_WARPGROUP_COLUMNS 64
#define MATMUL_WARPGROUP_BYTES 196608
#else
#define MATMUL_PANEL_ROWS 6
#define MATMUL_GROUP_COLUMNS 64
#define MATMUL_DEPTH 128
#define MATMUL_LEFT_BYTES 32768
#define MATMUL_PACKED_WORDS 2
#endif

struct MatmulParams {
  uint32_t m;
  uint32_t n;
  uint32_t k;
  uint32_t transpose;
  uint32_t biasF32;
  uint32_t present;  // a bit for each buffer
#ifdef __METAL_VERSION__
  uint32_t scratch[2];  // byte offsets
#else
  uint32_t groupRows;
  uint32_t tileColumns;
  uint32_t scratch[6];  // byte offsets
#endif
};
#ifdef __METAL_VERSION__
static_assert(sizeof(MatmulParams) == 32, "MatmulParams must match the declaration of matmul");
#else
static_assert(sizeof(MatmulParams) == 56, "MatmulParams must match the declaration of matmul");
#endif
#ifdef __METAL_VERSION__
struct MatmulScratch {
  threadgroup uchar* x;
  threadgroup uchar* weight;
};
inline MatmulScratch scratch_of(threadgroup uchar* memory, constant MatmulParams& p) {
  return {
      (threadgroup uchar*)(memory + p.scratch[0]),
      (threadgroup uchar*)(memory + p.scratch[1]),
  };
}
#else
struct MatmulScratch {
  float* panels;
  float* converted;
  float* sums;
  uint8_t* tiles;
  uint8_t* left;
  uint32_t* packed;
};
inline MatmulScratch scratch_of(const MlxtsCpuLaunch& l, const MatmulParams& p) {
  unsigned char* memory = static_cast<unsigned char*>(l.scratch);
  return {
      reinterpret_cast<float*>(memory + p.scratch[0]),
      reinterpret_cast<float*>(memory + p.scratch[1]),
      reinterpret_cast<float*>(memory + p.scratch[2]),
      reinterpret_cast<uint8_t*>(memory + p.scratch[3]),
      reinterpret_cast<uint8_t*>(memory + p.scratch[4]),
      reinterpret_cast<uint32_t*>(memory + p.scratch[5]),
  };
}
#endif
