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
  uint32_t rowsPerThreadgroup;
  uint32_t dim;
  float eps;
  float floor;
};
static_assert(sizeof(L2NormParams) == 20, "L2NormParams must match the declaration of l2_norm");
