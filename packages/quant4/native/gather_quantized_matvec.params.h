// Generated from the declaration of gather_quantized_matvec; `npm run gen` rewrites it.
#pragma once
#ifdef __METAL_VERSION__
#include <metal_stdlib>
#else
#include <stdint.h>
#include "cpu_kernel.h"
#endif

#define GATHER_QUANTIZED_MATVEC_X 0  // read
#define GATHER_QUANTIZED_MATVEC_WEIGHT 1  // read
#define GATHER_QUANTIZED_MATVEC_SCALES 2  // read
#define GATHER_QUANTIZED_MATVEC_BIASES 3  // read
#define GATHER_QUANTIZED_MATVEC_RHS_INDICES 4  // read
#define GATHER_QUANTIZED_MATVEC_LHS_INDICES 5  // read?
#define GATHER_QUANTIZED_MATVEC_OUT 6  // write
#define GATHER_QUANTIZED_MATVEC_PARAMS 7
#define GATHER_QUANTIZED_MATVEC_FAULT 8
#define GATHER_QUANTIZED_MATVEC_HAS_LHS_INDICES 32u
#define GATHER_QUANTIZED_MATVEC_FAULT_RHS_INDICES 1
#define GATHER_QUANTIZED_MATVEC_FAULT_LHS_INDICES 2

struct GatherQuantizedMatvecParams {
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
  uint32_t scratch[1];  // byte offsets
#else
  uint32_t mBlock;
  uint32_t columnStride;
  uint32_t groupStride;
  uint32_t int8;
  uint32_t scratch[3];  // byte offsets
#endif
};
#ifdef __METAL_VERSION__
static_assert(sizeof(GatherQuantizedMatvecParams) == 80, "GatherQuantizedMatvecParams must match the declaration of gather_quantized_matvec");
#else
static_assert(sizeof(GatherQuantizedMatvecParams) == 104, "GatherQuantizedMatvecParams must match the declaration of gather_quantized_matvec");
#endif
#ifdef __METAL_VERSION__
struct GatherQuantizedMatvecScratch {
  threadgroup float* sums;
};
inline GatherQuantizedMatvecScratch scratch_of(threadgroup uchar* memory, constant GatherQuantizedMatvecParams& p) {
  return {
      (threadgroup float*)(memory + p.scratch[0]),
  };
}
#else
struct GatherQuantizedMatvecScratch {
  uint16_t* ordered;
  float* sums;
  uint32_t* prepared;
};
inline GatherQuantizedMatvecScratch scratch_of(const MlxtsCpuLaunch& l, const GatherQuantizedMatvecParams& p) {
  unsigned char* memory = static_cast<unsigned char*>(l.scratch);
  return {
      reinterpret_cast<uint16_t*>(memory + p.scratch[0]),
      reinterpret_cast<float*>(memory + p.scratch[1]),
      reinterpret_cast<uint32_t*>(memory + p.scratch[2]),
  };
}
#endif
