// Generated from the declaration of quantize; `npm run gen` rewrites it.
#pragma once
#ifdef __METAL_VERSION__
#include <metal_stdlib>
#else
#include <stdint.h>
#include "cpu_kernel.h"
#endif

#define QUANTIZE_W 0  // read
#define QUANTIZE_WEIGHT 1  // write
#define QUANTIZE_SCALES 2  // write
#define QUANTIZE_BIASES 3  // write
#define QUANTIZE_PARAMS 4
#define QUANTIZE_FAULT 5
#define QUANTIZE_FAULT_NOT_FINITE 1

struct QuantizeParams {
  uint32_t cols;
  uint32_t groupSize;
  uint32_t gpu;
  uint32_t scratch[1];  // byte offsets
};
static_assert(sizeof(QuantizeParams) == 16, "QuantizeParams must match the declaration of quantize");
#ifdef __METAL_VERSION__
struct QuantizeScratch {
  threadgroup uchar* memory;
};
inline QuantizeScratch scratch_of(threadgroup uchar* memory, constant QuantizeParams& p) {
  return {
      (threadgroup uchar*)(memory + p.scratch[0]),
  };
}
#else
struct QuantizeScratch {
  uint8_t* memory;
};
inline QuantizeScratch scratch_of(const MlxtsCpuLaunch& l, const QuantizeParams& p) {
  unsigned char* memory = static_cast<unsigned char*>(l.scratch);
  return {
      reinterpret_cast<uint8_t*>(memory + p.scratch[0]),
  };
}
#endif
