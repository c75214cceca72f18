// Generated from the declaration of quantized_matmul; `npm run gen` rewrites it.
#pragma once
#ifdef __METAL_VERSION__
#include <metal_stdlib>
#else
#include <stdint.h>
#include "cpu_kernel.h"
#endif

#define QUANTIZED_MATMUL_X 0  // read
#define QUANTIZED_MATMUL_WEIGHT 1  // read
#define QUANTIZED_MATMUL_SCALES 2  // read
#define QUANTIZED_MATMUL_BIASES 3  // read
#define QUANTIZED_MATMUL_BIAS 4  // read?
#define QUANTIZED_MATMUL_OUT 5  // write
#define QUANTIZED_MATMUL_PARAMS 6
#define QUANTIZED_MATMUL_HAS_BIAS 16u
#define QUANTIZED_MATMUL_TILE_M 32
#define QUANTIZED_MATMUL_TILE_ROWS 64
#define QUANTIZED_MATMUL_TILE_COLS 32
#define QUANTIZED_MATMUL_TILE_STRIDE 36

struct QuantizedMatmulParams {
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
  uint32_t mBlock;
  uint32_t present;  // a bit for each buffer
  uint32_t scratch[1];  // byte offsets
};
static_assert(sizeof(QuantizedMatmulParams) == 64, "QuantizedMatmulParams must match the declaration of quantized_matmul");
#ifdef __METAL_VERSION__
struct QuantizedMatmulScratch {
  threadgroup uchar* memory;
};
inline QuantizedMatmulScratch scratch_of(threadgroup uchar* memory, constant QuantizedMatmulParams& p) {
  return {
      (threadgroup uchar*)(memory + p.scratch[0]),
  };
}
#else
struct QuantizedMatmulScratch {
  uint8_t* memory;
};
inline QuantizedMatmulScratch scratch_of(const MlxtsCpuLaunch& l, const QuantizedMatmulParams& p) {
  unsigned char* memory = static_cast<unsigned char*>(l.scratch);
  return {
      reinterpret_cast<uint8_t*>(memory + p.scratch[0]),
  };
}
#endif
