// Generated from the declaration of gather_quantized_matmul; `npm run gen` rewrites it.
#pragma once
#ifdef __METAL_VERSION__
#include <metal_stdlib>
#else
#include <stdint.h>
#include "cpu_kernel.h"
#endif

#define GATHER_QUANTIZED_MATMUL_X 0  // read
#define GATHER_QUANTIZED_MATMUL_WEIGHT 1  // read
#define GATHER_QUANTIZED_MATMUL_SCALES 2  // read
#define GATHER_QUANTIZED_MATMUL_BIASES 3  // read
#define GATHER_QUANTIZED_MATMUL_RHS_INDICES 4  // read
#define GATHER_QUANTIZED_MATMUL_LHS_INDICES 5  // read?
#define GATHER_QUANTIZED_MATMUL_ORDER 6  // read?
#define GATHER_QUANTIZED_MATMUL_OFFSETS 7  // read?
#define GATHER_QUANTIZED_MATMUL_OUT 8  // write
#define GATHER_QUANTIZED_MATMUL_PARAMS 9
#define GATHER_QUANTIZED_MATMUL_FAULT 10
#define GATHER_QUANTIZED_MATMUL_HAS_LHS_INDICES 32u
#define GATHER_QUANTIZED_MATMUL_HAS_ORDER 64u
#define GATHER_QUANTIZED_MATMUL_HAS_OFFSETS 128u
#define GATHER_QUANTIZED_MATMUL_FAULT_RHS_INDICES 1
#define GATHER_QUANTIZED_MATMUL_FAULT_LHS_INDICES 2
#define GATHER_QUANTIZED_MATMUL_FAULT_OFFSETS 3
#define GATHER_QUANTIZED_MATMUL_FAULT_ORDER 4

struct GatherQuantizedMatmulParams {
  uint32_t pairs;
  uint32_t m;
  uint32_t matrices;
  uint32_t lefts;
  uint32_t rhsCount;
  uint32_t lhsCount;
  uint32_t signedIndices;
  uint32_t size0;
  uint32_t size1;
  uint32_t left0;
  uint32_t left1;
  uint32_t left2;
  uint32_t right0;
  uint32_t right1;
  uint32_t right2;
  uint32_t rows;
  uint32_t cols;
  uint32_t groupSize;
  uint32_t present;  // a bit for each buffer
#ifdef __METAL_VERSION__
  uint32_t scratch[6];  // byte offsets
#else
  uint32_t mBlock;
  uint32_t columnStride;
  uint32_t groupStride;
  uint32_t int8;
  uint32_t blocks;
  uint32_t scratch[13];  // byte offsets
#endif
};
#ifdef __METAL_VERSION__
static_assert(sizeof(GatherQuantizedMatmulParams) == 100, "GatherQuantizedMatmulParams must match the declaration of gather_quantized_matmul");
#else
static_assert(sizeof(GatherQuantizedMatmulParams) == 148, "GatherQuantizedMatmulParams must match the declaration of gather_quantized_matmul");
#endif
#ifdef __METAL_VERSION__
struct GatherQuantizedMatmulScratch {
  threadgroup uchar* xTiles;
  threadgroup uchar* wTiles;
  threadgroup float* scales;
  threadgroup uint* xRows;
  threadgroup uint* outRows;
  threadgroup uint* slot;
};
inline GatherQuantizedMatmulScratch scratch_of(threadgroup uchar* memory, constant GatherQuantizedMatmulParams& p) {
  return {
      (threadgroup uchar*)(memory + p.scratch[0]),
      (threadgroup uchar*)(memory + p.scratch[1]),
      (threadgroup float*)(memory + p.scratch[2]),
      (threadgroup uint*)(memory + p.scratch[3]),
      (threadgroup uint*)(memory + p.scratch[4]),
      (threadgroup uint*)(memory + p.scratch[5]),
  };
}
#else
struct GatherQuantizedMatmulScratch {
  float* activations;
  float* sums;
  float* products;
  float* scales;
  float* biases;
  float* rowScales;
  float* rowBiases;
  float* panel;
  uint32_t* prepared;
  uint16_t* fewOrdered;
  float* fewSums;
  uint32_t* xRows;
  uint32_t* outRows;
};
inline GatherQuantizedMatmulScratch scratch_of(const MlxtsCpuLaunch& l, const GatherQuantizedMatmulParams& p) {
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
      reinterpret_cast<uint16_t*>(memory + p.scratch[9]),
      reinterpret_cast<float*>(memory + p.scratch[10]),
      reinterpret_cast<uint32_t*>(memory + p.scratch[11]),
      reinterpret_cast<uint32_t*>(memory + p.scratch[12]),
  };
}
#endif
