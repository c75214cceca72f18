// Generated from the declaration of multi_matvec; `npm run gen` rewrites it.
#pragma once
#ifdef __METAL_VERSION__
#include <metal_stdlib>
#else
#include <stdint.h>
#include "cpu_kernel.h"
#endif

#define MULTI_MATVEC_X 0  // read
#define MULTI_MATVEC_A 1  // read
#define MULTI_MATVEC_B 2  // read
#define MULTI_MATVEC_C 3  // read?
#define MULTI_MATVEC_D 4  // read?
#define MULTI_MATVEC_OUT_A 5  // write
#define MULTI_MATVEC_OUT_B 6  // write
#define MULTI_MATVEC_OUT_C 7  // write?
#define MULTI_MATVEC_OUT_D 8  // write?
#define MULTI_MATVEC_PARAMS 9
#define MULTI_MATVEC_HAS_C 8u
#define MULTI_MATVEC_HAS_D 16u
#define MULTI_MATVEC_HAS_OUT_C 128u
#define MULTI_MATVEC_HAS_OUT_D 256u
#define MULTI_MATVEC_ROWS 8
#ifdef __METAL_VERSION__
#define MULTI_MATVEC_MOST_ELEMENTS 2147483647
#define MULTI_MATVEC_SIMDGROUPS 4
#define MULTI_MATVEC_SIMDGROUP_COLUMNS 4
#else
#define MULTI_MATVEC_MOST_ELEMENTS 262144
#endif

struct MultiMatvecParams {
  uint32_t m;
  uint32_t k;
  uint32_t nA;
  uint32_t nB;
  uint32_t nC;
  uint32_t nD;
  uint32_t present;  // a bit for each buffer
#ifdef __METAL_VERSION__
  uint32_t columnsA;
  uint32_t columnsB;
  uint32_t columnsC;
  uint32_t columnsD;
  uint32_t scratch[1];  // byte offsets
#else
  uint32_t groupColumns;
  uint32_t width;
  uint32_t scratch[1];  // byte offsets
#endif
};
#ifdef __METAL_VERSION__
static_assert(sizeof(MultiMatvecParams) == 48, "MultiMatvecParams must match the declaration of multi_matvec");
#else
static_assert(sizeof(MultiMatvecParams) == 40, "MultiMatvecParams must match the declaration of multi_matvec");
#endif
#ifdef __METAL_VERSION__
struct MultiMatvecScratch {
  threadgroup float* partial;
};
inline MultiMatvecScratch scratch_of(threadgroup uchar* memory, constant MultiMatvecParams& p) {
  return {
      (threadgroup float*)(memory + p.scratch[0]),
  };
}
#else
struct MultiMatvecScratch {
  float* x;
};
inline MultiMatvecScratch scratch_of(const MlxtsCpuLaunch& l, const MultiMatvecParams& p) {
  unsigned char* memory = static_cast<unsigned char*>(l.scratch);
  return {
      reinterpret_cast<float*>(memory + p.scratch[0]),
  };
}
#endif
