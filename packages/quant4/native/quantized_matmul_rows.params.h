// Generated from the declaration of quantized_matmul_rows; `npm run gen` rewrites it.
#pragma once
#ifdef __METAL_VERSION__
#include <metal_stdlib>
#else
#include <stdint.h>
#include "cpu_kernel.h"
#endif

#define QUANTIZED_MATMUL_ROWS_X 0  // read
#define QUANTIZED_MATMUL_ROWS_WEIGHT 1  // read
#define QUANTIZED_MATMUL_ROWS_SCALES 2  // read
#define QUANTIZED_MATMUL_ROWS_BIASES 3  // read
#define QUANTIZED_MATMUL_ROWS_BIAS 4  // read?
#define QUANTIZED_MATMUL_ROWS_OUT 5  // write
#define QUANTIZED_MATMUL_ROWS_PARAMS 6
#define QUANTIZED_MATMUL_ROWS_HAS_BIAS 16u
#define QUANTIZED_MATMUL_ROWS_TILE_M 32
#define QUANTIZED_MATMUL_ROWS_TILE_COLS 64
#define QUANTIZED_MATMUL_ROWS_TILE_ROWS 32
#define QUANTIZED_MATMUL_ROWS_X_STRIDE 36
#define QUANTIZED_MATMUL_ROWS_STRIDE 68

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
  uint32_t scratch[1];  // byte offsets
};
static_assert(sizeof(QuantizedMatmulRowsParams) == 60, "QuantizedMatmulRowsParams must match the declaration of quantized_matmul_rows");
#ifdef __METAL_VERSION__
struct QuantizedMatmulRowsScratch {
  threadgroup uchar* memory;
};
inline QuantizedMatmulRowsScratch scratch_of(threadgroup uchar* memory, constant QuantizedMatmulRowsParams& p) {
  return {
      (threadgroup uchar*)(memory + p.scratch[0]),
  };
}
#else
struct QuantizedMatmulRowsScratch {
  uint8_t* memory;
};
inline QuantizedMatmulRowsScratch scratch_of(const MlxtsCpuLaunch& l, const QuantizedMatmulRowsParams& p) {
  unsigned char* memory = static_cast<unsigned char*>(l.scratch);
  return {
      reinterpret_cast<uint8_t*>(memory + p.scratch[0]),
  };
}
#endif
