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
#ifdef __METAL_VERSION__
#define QUANTIZED_MATMUL_THREADS 128
#define QUANTIZED_MATMUL_TILE_M 64
#define QUANTIZED_MATMUL_PART_ROWS 32
#define QUANTIZED_MATMUL_TILE_BYTES 64
#ifdef MLXTS_CUDA
#define QUANTIZED_MATMUL_TILE_ROWS 128
#define QUANTIZED_MATMUL_PART_M 64
#define QUANTIZED_MATMUL_TILES 4
#else
#define QUANTIZED_MATMUL_TILE_ROWS 64
#define QUANTIZED_MATMUL_PART_M 32
#define QUANTIZED_MATMUL_TILES 2
#endif
#else
#define QUANTIZED_MATMUL_BLOCK_ROWS 64
#define QUANTIZED_MATMUL_F32_DEPTH 256
#define QUANTIZED_MATMUL_CODE_DEPTH 128
#define QUANTIZED_MATMUL_LIMB_GROUP_WORDS 5
#define QUANTIZED_MATMUL_PREPARED_WORDS 16
#define QUANTIZED_MATMUL_LANES 16
#define QUANTIZED_MATMUL_PADDED_ROWS 16
#define QUANTIZED_MATMUL_BLOCKS_AT_ONCE 4
#endif

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
  uint32_t present;  // a bit for each buffer
#ifdef __METAL_VERSION__
  uint32_t scratch[3];  // byte offsets
#else
  uint32_t mBlock;
  uint32_t groupStride;
  uint32_t int8;
  uint32_t blocks;
  uint32_t scratch[9];  // byte offsets
#endif
};
#ifdef __METAL_VERSION__
static_assert(sizeof(QuantizedMatmulParams) == 68, "QuantizedMatmulParams must match the declaration of quantized_matmul");
#else
static_assert(sizeof(QuantizedMatmulParams) == 108, "QuantizedMatmulParams must match the declaration of quantized_matmul");
#endif
#ifdef __METAL_VERSION__
struct QuantizedMatmulScratch {
  threadgroup uchar* xTiles;
  threadgroup uchar* wTiles;
  threadgroup float* scales;
};
inline QuantizedMatmulScratch scratch_of(threadgroup uchar* memory, constant QuantizedMatmulParams& p) {
  return {
      (threadgroup uchar*)(memory + p.scratch[0]),
      (threadgroup uchar*)(memory + p.scratch[1]),
      (threadgroup float*)(memory + p.scratch[2]),
  };
}
#else
struct QuantizedMatmulScratch {
  float* activations;
  float* sums;
  float* products;
  float* scales;
  float* biases;
  float* rowScales;
  float* rowBiases;
  float* panel;
  uint32_t* prepared;
};
inline QuantizedMatmulScratch scratch_of(const MlxtsCpuLaunch& l, const QuantizedMatmulParams& p) {
  unsigned char* memory = static_cast<unsigned char*>(l.scratch);
  return {
      reinterpret_cast<float*>(memory + p.scratch[0]),
      reinterpret_cast<float*>(memory + p.scratch[1]),
      reinterpret_cast<float*>(memory + p.scratch[2]),
      reinterpret_cast<float*>(memory + p.scratch[3]),
      reinterpret_cast<float*>(memory + p.scratch[4]),
      reinterpret_cast<float*>(memory + p.scratch[5]),
      reinterpret_cast<float*>(memory + p.scratch[6]),
      reinterpret_cast<float*>(memory + p.scratch[7]),
      reinterpret_cast<uint32_t*>(memory + p.scratch[8]),
  };
}
#endif
