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
#define MATVEC_SIMDGROUPS 4
#define MATVEC_SIMDGROUP_COLUMNS 4

struct MatvecParams {
  uint32_t m;
  uint32_t n;
  uint32_t k;
  uint32_t groupColumns;
  uint32_t biasF32;
  uint32_t present;  // a bit for each buffer
  uint32_t scratch[1];  // byte offsets
};
static_assert(sizeof(MatvecParams) == 28, "MatvecParams must match the declaration of matvec");
#ifdef __METAL_VERSION__
struct MatvecScratch {
  threadgroup uchar* memory;
};
inline MatvecScratch scratch_of(threadgroup uchar* memory, constant MatvecParams& p) {
  return {
      (threadgroup uchar*)(memory + p.scratch[0]),
  };
}
#else
struct MatvecScratch {
  uint8_t* memory;
};
inline MatvecScratch scratch_of(const MlxtsCpuLaunch& l, const MatvecParams& p) {
  unsigned char* memory = static_cast<unsigned char*>(l.scratch);
  return {
      reinterpret_cast<uint8_t*>(memory + p.scratch[0]),
  };
}
#endif
