// Generated from the declaration of quantized_matvec_rows; `npm run gen` rewrites it.
#pragma once
#ifdef __METAL_VERSION__
#include <metal_stdlib>
#else
#include <stdint.h>
#include "cpu_kernel.h"
#endif

#define QUANTIZED_MATVEC_ROWS_X 0  // read
#define QUANTIZED_MATVEC_ROWS_WEIGHT 1  // read
#define QUANTIZED_MATVEC_ROWS_SCALES 2  // read
#define QUANTIZED_MATVEC_ROWS_BIASES 3  // read
#define QUANTIZED_MATVEC_ROWS_BIAS 4  // read?
#define QUANTIZED_MATVEC_ROWS_OUT 5  // write
#define QUANTIZED_MATVEC_ROWS_PARAMS 6
#define QUANTIZED_MATVEC_ROWS_HAS_BIAS 16u
#define QUANTIZED_MATVEC_ROWS_MOST_M 8
#define QUANTIZED_MATVEC_ROWS_TILE_COLS 64
#define QUANTIZED_MATVEC_ROWS_SIMDGROUPS 8

struct QuantizedMatvecRowsParams {
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
static_assert(sizeof(QuantizedMatvecRowsParams) == 60, "QuantizedMatvecRowsParams must match the declaration of quantized_matvec_rows");
#ifdef __METAL_VERSION__
struct QuantizedMatvecRowsScratch {
  threadgroup uchar* memory;
};
inline QuantizedMatvecRowsScratch scratch_of(threadgroup uchar* memory, constant QuantizedMatvecRowsParams& p) {
  return {
      (threadgroup uchar*)(memory + p.scratch[0]),
  };
}
#else
struct QuantizedMatvecRowsScratch {
  uint8_t* memory;
};
inline QuantizedMatvecRowsScratch scratch_of(const MlxtsCpuLaunch& l, const QuantizedMatvecRowsParams& p) {
  unsigned char* memory = static_cast<unsigned char*>(l.scratch);
  return {
      reinterpret_cast<uint8_t*>(memory + p.scratch[0]),
  };
}
#endif
