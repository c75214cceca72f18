// Generated from the declaration of quantized_matvec_swiglu; `npm run gen` rewrites it.
#pragma once
#ifdef __METAL_VERSION__
#include <metal_stdlib>
#else
#include <stdint.h>
#include "cpu_kernel.h"
#endif

#define QUANTIZED_MATVEC_SWIGLU_X 0  // read
#define QUANTIZED_MATVEC_SWIGLU_GATE_WEIGHT 1  // read
#define QUANTIZED_MATVEC_SWIGLU_GATE_SCALES 2  // read
#define QUANTIZED_MATVEC_SWIGLU_GATE_BIASES 3  // read
#define QUANTIZED_MATVEC_SWIGLU_UP_WEIGHT 4  // read
#define QUANTIZED_MATVEC_SWIGLU_UP_SCALES 5  // read
#define QUANTIZED_MATVEC_SWIGLU_UP_BIASES 6  // read
#define QUANTIZED_MATVEC_SWIGLU_OUT 7  // write
#define QUANTIZED_MATVEC_SWIGLU_PARAMS 8
#ifndef __METAL_VERSION__
#define QUANTIZED_MATVEC_SWIGLU_RUN_BLOCKS 64
#endif

struct QuantizedMatvecSwigluParams {
  uint32_t m;
  uint32_t rows;
  uint32_t cols;
  uint32_t groupSize;
#ifdef __METAL_VERSION__
  uint32_t scratch[1];  // byte offsets
#else
  uint32_t columnStride;
  uint32_t groupStride;
  uint32_t int8;
  uint32_t scratch[5];  // byte offsets
#endif
};
#ifdef __METAL_VERSION__
static_assert(sizeof(QuantizedMatvecSwigluParams) == 20, "QuantizedMatvecSwigluParams must match the declaration of quantized_matvec_swiglu");
#else
static_assert(sizeof(QuantizedMatvecSwigluParams) == 48, "QuantizedMatvecSwigluParams must match the declaration of quantized_matvec_swiglu");
#endif
#ifdef __METAL_VERSION__
struct QuantizedMatvecSwigluScratch {
  threadgroup float* sums;
};
inline QuantizedMatvecSwigluScratch scratch_of(threadgroup uchar* memory, constant QuantizedMatvecSwigluParams& p) {
  return {
      (threadgroup float*)(memory + p.scratch[0]),
  };
}
#else
struct QuantizedMatvecSwigluScratch {
  uint16_t* ordered;
  float* sums;
  uint32_t* prepared;
  float* gates;
  float* ups;
};
inline QuantizedMatvecSwigluScratch scratch_of(const MlxtsCpuLaunch& l, const QuantizedMatvecSwigluParams& p) {
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
