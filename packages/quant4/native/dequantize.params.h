// Generated from the declaration of dequantize; `npm run gen` rewrites it.
#pragma once
#ifdef __METAL_VERSION__
#include <metal_stdlib>
#else
#include <stdint.h>
#include "cpu_kernel.h"
#endif

#define DEQUANTIZE_WEIGHT 0  // read
#define DEQUANTIZE_SCALES 1  // read
#define DEQUANTIZE_BIASES 2  // read
#define DEQUANTIZE_OUT 3  // write
#define DEQUANTIZE_PARAMS 4

struct DequantizeParams {
  uint32_t cols;
  uint32_t groupSize;
  uint32_t scratch[1];  // byte offsets
};
static_assert(sizeof(DequantizeParams) == 12, "DequantizeParams must match the declaration of dequantize");
#ifdef __METAL_VERSION__
struct DequantizeScratch {
  threadgroup uchar* memory;
};
inline DequantizeScratch scratch_of(threadgroup uchar* memory, constant DequantizeParams& p) {
  return {
      (threadgroup uchar*)(memory + p.scratch[0]),
  };
}
#else
struct DequantizeScratch {
  uint8_t* memory;
};
inline DequantizeScratch scratch_of(const MlxtsCpuLaunch& l, const DequantizeParams& p) {
  unsigned char* memory = static_cast<unsigned char*>(l.scratch);
  return {
      reinterpret_cast<uint8_t*>(memory + p.scratch[0]),
  };
}
#endif
