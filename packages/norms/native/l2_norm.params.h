// Generated from the declaration of l2_norm; `npm run gen` rewrites it.
#pragma once
#ifdef __METAL_VERSION__
#include <metal_stdlib>
#else
#include <stdint.h>
#endif

#define L2_NORM_X 0  // read
#define L2_NORM_OUT 1  // write
#define L2_NORM_PARAMS 2

struct L2NormParams {
  uint32_t rows;
  uint32_t dim;
  float eps;
  float floor;
#ifdef __METAL_VERSION__
  uint32_t scratch[1];  // byte offsets
#else
  uint32_t rowsPerThreadgroup;
#endif
};
static_assert(sizeof(L2NormParams) == 20, "L2NormParams must match the declaration of l2_norm");
#ifdef __METAL_VERSION__
struct L2NormScratch {
  threadgroup float* partial;
};
inline L2NormScratch scratch_of(threadgroup uchar* memory, constant L2NormParams& p) {
  return {
      (threadgroup float*)(memory + p.scratch[0]),
  };
}
#endif
