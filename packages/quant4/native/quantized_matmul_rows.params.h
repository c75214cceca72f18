// Generated from the declaration of quantized_matmul_rows; `npm run gen` rewrites it.
#pragma once
#ifdef __METAL_VERSION__
#include <metal_stdlib>
#else
#include <stdint.h>
#endif

#define QUANTIZED_MATMUL_ROWS_X 0  // read
#define QUANTIZED_MATMUL_ROWS_WEIGHT 1  // read
#define QUANTIZED_MATMUL_ROWS_SCALES 2  // read
#define QUANTIZED_MATMUL_ROWS_BIASES 3  // read
#define QUANTIZED_MATMUL_ROWS_BIAS 4  // read?
#define QUANTIZED_MATMUL_ROWS_OUT 5  // write
#define QUANTIZED_MATMUL_ROWS_PARAMS 6
#define QUANTIZED_MATMUL_ROWS_HAS_BIAS 16u
#ifdef __METAL_VERSION__
#define QUANTIZED_MATMUL_ROWS_THREADS 128
#define QUANTIZED_MATMUL_ROWS_TILE_M 64
#define QUANTIZED_MATMUL_ROWS_TILE_COLS 64
#define QUANTIZED_MATMUL_ROWS_PART_M 32
#define QUANTIZED_MATMUL_ROWS_PART_COLS 32
#define QUANTIZED_MATMUL_ROWS_TILE_ROWS 16
#else
#define QUANTIZED_MATMUL_ROWS_TILE_M 16
#define QUANTIZED_MATMUL_ROWS_TILE_COLS 128
#endif

struct QuantizedMatmulRowsParams {
  uint32_t m;
  uint32_t rows;
  uint32_t cols;
  uint32_t groupSize;
  uint32_t biasDtype;
  uint32_t batch0;
  uint32_t batch1;
  uint32_t xStride0;
  uint32_t xStride1;
  uint32_t xStride2;
  uint32_t qStride0;
  uint32_t qStride1;
  uint32_t qStride2;
  uint32_t present;  // a bit for each buffer
#ifdef __METAL_VERSION__
  uint32_t scratch[2];  // byte offsets
#endif
};
#ifdef __METAL_VERSION__
static_assert(sizeof(QuantizedMatmulRowsParams) == 64, "QuantizedMatmulRowsParams must match the declaration of quantized_matmul_rows");
#else
static_assert(sizeof(QuantizedMatmulRowsParams) == 56, "QuantizedMatmulRowsParams must match the declaration of quantized_matmul_rows");
#endif
#ifdef __METAL_VERSION__
struct QuantizedMatmulRowsScratch {
  threadgroup float* xTiles;
  threadgroup float* wTiles;
};
inline QuantizedMatmulRowsScratch scratch_of(threadgroup uchar* memory, constant QuantizedMatmulRowsParams& p) {
  return {
      (threadgroup float*)(memory + p.scratch[0]),
      (threadgroup float*)(memory + p.scratch[1]),
  };
}
#endif
