// Generated from the declaration of transpose_matrix; `npm run gen` rewrites it.
#pragma once
#ifdef __METAL_VERSION__
#include <metal_stdlib>
#else
#include <stdint.h>
#endif

#define TRANSPOSE_MATRIX_FROM 0  // read
#define TRANSPOSE_MATRIX_TO 1  // readWrite
#define TRANSPOSE_MATRIX_PARAMS 2

struct TransposeMatrixParams {
  uint32_t rows;
  uint32_t columns;
  uint32_t fromStride;
  uint32_t toStride;
};
static_assert(sizeof(TransposeMatrixParams) == 16, "TransposeMatrixParams must match the declaration of transpose_matrix");
