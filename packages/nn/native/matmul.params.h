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
#define MATMUL_GPU_THREADS 128
#define MATMUL_GPU_ROWS 64
#define MATMUL_GPU_COLUMNS 64
#define MATMUL_GPU_DEPTH 32

struct MatmulParams {
  uint32_t m;
  uint32_t n;
  uint32_t k;
  uint32_t groupRows;
  uint32_t transpose;
  uint32_t biasF32;
  uint32_t present;  // a bit for each buffer
  uint32_t scratch[1];  // byte offsets
};
static_assert(sizeof(MatmulParams) == 32, "MatmulParams must match the declaration of matmul");
#ifdef __METAL_VERSION__
struct MatmulScratch {
  threadgroup uchar* memory;
};
inline MatmulScratch scratch_of(threadgroup uchar* memory, constant MatmulParams& p) {
  return {
      (threadgroup uchar*)(memory + p.scratch[0]),
  };
}
#else
struct MatmulScratch {
  uint8_t* memory;
};
inline MatmulScratch scratch_of(const MlxtsCpuLaunch& l, const MatmulParams& p) {
  unsigned char* memory = static_cast<unsigned char*>(l.scratch);
  return {
      reinterpret_cast<uint8_t*>(memory + p.scratch[0]),
  };
}
#endif
