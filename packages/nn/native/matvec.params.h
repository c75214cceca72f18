// Generated from the declaration of matvec; `npm run gen` rewrites it.
#pragma once
#ifdef __METAL_VERSION__
#include <metal_stdlib>
#else
#include <stdint.h>
#include "cpu_kernel.h"
#endif

#define MATVEC_X 0  // read
#define MATVEC_WEIGHT 1  // read
#define MATVEC_BIAS 2  // read?
#define MATVEC_OUT 3  // write
#define MATVEC_PARAMS 4
#define MATVEC_HAS_BIAS 4u
#define MATVEC_ROWS 8
#ifdef __METAL_VERSION__
#define MATVEC_MOST_ELEMENTS 2147483647
#define MATVEC_SIMDGROUPS 4
#define MATVEC_SIMDGROUP_COLUMNS 4
#else
#define MATVEC_MOST_ELEMENTS 262144
#endif

struct MatvecParams {
  uint32_t m;
  uint32_t n;
  uint32_t k;
  uint32_t biasF32;
  uint32_t present;  // a bit for each buffer
#ifdef __METAL_VERSION__
  uint32_t groupColumns;
  uint32_t scratch[1];  // byte offsets
#else
  uint32_t groupColumns;
  uint32_t width;
  uint32_t scratch[1];  // byte offsets
#endif
};
#ifdef __METAL_VERSION__
static_assert(sizeof(MatvecParams) == 28, "MatvecParams must match the declaration of matvec");
#else
static_assert(sizeof(MatvecParams) == 32, "MatvecParams must match the declaration of matvec");
#endif
#ifdef __METAL_VERSION__
struct MatvecScratch {
  threadgroup float* partial;
};
inline MatvecScratch scratch_of(threadgroup uchar* memory, constant MatvecParams& p) {
  return {
      (threadgroup float*)(memory + p.scratch[0]),
  };
}
#else
struct MatvecScratch {
  float* x;
};
inline MatvecScratch scratch_of(const MlxtsCpuLaunch& l, const MatvecParams& p) {
  unsigned char* memory = static_cast<unsigned char*>(l.scratch);
  return {
      reinterpret_cast<float*>(memory + p.scratch[0]),
  };
}
#endif
