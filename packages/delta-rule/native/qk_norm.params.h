// Generated from the declaration of qk_norm; `npm run gen` rewrites it.
#pragma once
#ifdef __METAL_VERSION__
#include <metal_stdlib>
#else
#include <stdint.h>
#endif

#define QK_NORM_Q 0  // read
#define QK_NORM_K 1  // read
#define QK_NORM_Q_UNIT 2  // write
#define QK_NORM_K_UNIT 3  // write
#define QK_NORM_PARAMS 4

struct QkNormParams {
  uint32_t rows;
  uint32_t dim;
  uint32_t rowsPerThreadgroup;
  float eps;
};
static_assert(sizeof(QkNormParams) == 16, "QkNormParams must match the declaration of qk_norm");
