// Generated from the declaration of matvec_swiglu; `npm run gen` rewrites it.
#pragma once
#ifdef __METAL_VERSION__
#include <metal_stdlib>
#else
#include <stdint.h>
#include "cpu_kernel.h"
#endif

#define MATVEC_SWIGLU_X 0  // read
#define MATVEC_SWIGLU_GATE 1  // read
#define MATVEC_SWIGLU_UP 2  // read
#define MATVEC_SWIGLU_OUT 3  // write
#define MATVEC_SWIGLU_PARAMS 4
#define MATVEC_SWIGLU_ROWS 8
#ifdef __METAL_VERSION__
#define MATVEC_SWIGLU_MOST_ELEMENTS 2147483647
#define MATVEC_SWIGLU_SIMDGROUPS 4
#define MATVEC_SWIGLU_SIMDGROUP_COLUMNS 4
#else
#define MATVEC_SWIGLU_MOST_ELEMENTS 262144
#endif

struct MatvecSwigluParams {
  uint32_t m;
  uint32_t n;
  uint32_t k;
#ifdef __METAL_VERSION__
  uint32_t groupColumns;
  uint32_t scratch[1];  // byte offsets
#else
  uint32_t groupColumns;
  uint32_t upColumns;
  uint32_t width;
  uint32_t scratch[2];  // byte offsets
#endif
};
#ifdef __METAL_VERSION__
static_assert(sizeof(MatvecSwigluParams) == 20, "MatvecSwigluParams must match the declaration of matvec_swiglu");
#else
static_assert(sizeof(MatvecSwigluParams) == 32, "MatvecSwigluParams must match the declaration of matvec_swiglu");
#endif
#ifdef __METAL_VERSION__
struct MatvecSwigluScratch {
  threadgroup float* partial;
};
inline MatvecSwigluScratch scratch_of(threadgroup uchar* memory, constant MatvecSwigluParams& p) {
  return {
      (threadgroup float*)(memory + p.scratch[0]),
  };
}
#else
struct MatvecSwigluScratch {
  float* x;
  float* ups;
};
inline MatvecSwigluScratch scratch_of(const MlxtsCpuLaunch& l, const MatvecSwigluParams& p) {
  unsigned char* memory = static_cast<unsigned char*>(l.scratch);
  return {
      reinterpret_cast<float*>(memory + p.scratch[0]),
      reinterpret_cast<float*>(memory + p.scratch[1]),
  };
}
#endif
