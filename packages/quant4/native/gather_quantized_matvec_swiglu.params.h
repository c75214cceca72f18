// Generated from the declaration of gather_quantized_matvec_swiglu; `npm run gen` rewrites it.
#pragma once
#ifdef __METAL_VERSION__
#include <metal_stdlib>
#else
#include <stdint.h>
#include "cpu_kernel.h"
#endif

#define GATHER_QUANTIZED_MATVEC_SWIGLU_X 0  // read
#define GATHER_QUANTIZED_MATVEC_SWIGLU_GATE_WEIGHT 1  // read
#define GATHER_QUANTIZED_MATVEC_SWIGLU_GATE_SCALES 2  // read
#define GATHER_QUANTIZED_MATVEC_SWIGLU_GATE_BIASES 3  // read
#define GATHER_QUANTIZED_MATVEC_SWIGLU_UP_WEIGHT 4  // read
#define GATHER_QUANTIZED_MATVEC_SWIGLU_UP_SCALES 5  // read
#define GATHER_QUANTIZED_MATVEC_SWIGLU_UP_BIASES 6  // read
#define GATHER_QUANTIZED_MATVEC_SWIGLU_RHS_INDICES 7  // read
#define GATHER_QUANTIZED_MATVEC_SWIGLU_LHS_INDICES 8  // read?
#define GATHER_QUANTIZED_MATVEC_SWIGLU_OUT 9  // write
#define GATHER_QUANTIZED_MATVEC_SWIGLU_PARAMS 10
#define GATHER_QUANTIZED_MATVEC_SWIGLU_FAULT 11
#define GATHER_QUANTIZED_MATVEC_SWIGLU_HAS_LHS_INDICES 256u
#define GATHER_QUANTIZED_MATVEC_SWIGLU_FAULT_RHS_INDICES 1
#define GATHER_QUANTIZED_MATVEC_SWIGLU_FAULT_LHS_INDICES 2

struct GatherQuantizedMatvecSwigluParams {
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
  uint32_t keptRows;
  uint32_t columnStride;
  uint32_t groupStride;
  uint32_t int8;
  uint32_t scratch[5];  // byte offsets
#endif
};
#ifdef __METAL_VERSION__
static_assert(sizeof(GatherQuantizedMatvecSwigluParams) == 80, "GatherQuantizedMatvecSwigluParams must match the declaration of gather_quantized_matvec_swiglu");
#else
static_assert(sizeof(GatherQuantizedMatvecSwigluParams) == 116, "GatherQuantizedMatvecSwigluParams must match the declaration of gather_quantized_matvec_swiglu");
#endif
#ifdef __METAL_VERSION__
struct GatherQuantizedMatvecSwigluScratch {
  threadgroup float* sums;
};
inline GatherQuantizedMatvecSwigluScratch scratch_of(threadgroup uchar* memory, constant GatherQuantizedMatvecSwigluParams& p) {
  return {
      (threadgroup float*)(memory + p.scratch[0]),
  };
}
#else
struct GatherQuantizedMatvecSwigluScratch {
  uint16_t* ordered;
  float* sums;
  uint32_t* prepared;
  float* gates;
  float* ups;
};
inline GatherQuantizedMatvecSwigluScratch scratch_of(const MlxtsCpuLaunch& l, const GatherQuantizedMatvecSwigluParams& p) {
  unsigned char* memory = static_cast<unsigned char*>(l.scratch);
  return {
      reinterpret_cast<uint16_t*>(memory + p.scratch[0]),
      reinterpret_cast<float*>(memory + p.scratch[1]),
      reinterpret_cast<uint32_t*>(memory + p.scratch[2]),
      reinterpret_cast<float*>(memory + p.scratch[3]),
      reinterpret_cast<float*>(memory + p.scratch[4]),
  };
}
#endif
