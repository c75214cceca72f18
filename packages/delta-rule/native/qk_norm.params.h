// Generated from the declaration of qk_norm; `npm run gen` rewrites it.
#pragma once
#ifdef __METAL_VERSION__
#include <metal_stdlib>
#else
#include <stdint.h>
#endif

#define QK_NORM_Q 0  // read?
#define QK_NORM_K 1  // read?
#define QK_NORM_MASK 2  // read?
#define QK_NORM_Q_UNIT 3  // write?
#define QK_NORM_K_UNIT 4  // write?
#define QK_NORM_PARAMS 5
#define QK_NORM_HAS_Q 1u
#define QK_NORM_HAS_K 2u
#define QK_NORM_HAS_MASK 4u
#define QK_NORM_HAS_Q_UNIT 8u
#define QK_NORM_HAS_K_UNIT 16u
#ifdef __METAL_VERSION__
#ifdef MLXTS_CUDA
#define QK_NORM_ROWS_PER_THREADGROUP 32
#define QK_NORM_ROWS_PER_SIMDGROUP 4
#else
#define QK_NORM_ROWS_PER_THREADGROUP 8
#define QK_NORM_ROWS_PER_SIMDGROUP 1
#endif
#else
#define QK_NORM_ROWS_PER_THREADGROUP 32
#endif

struct QkNormParams {
  uint32_t rows;
  uint32_t keyHeads;
  uint32_t dim;
  uint32_t qkNorm;
  float eps;
  float normFloor;
  uint32_t present;  // a bit for each buffer
};
static_assert(sizeof(QkNormParams) == 28, "QkNormParams must match the declaration of qk_norm");
