// Generated from the declaration of dequantize; `npm run gen` rewrites it.
#pragma once
#ifdef __METAL_VERSION__
#include <metal_stdlib>
#else
#include <stdint.h>
#endif

#define DEQUANTIZE_WEIGHT 0  // read
#define DEQUANTIZE_SCALES 1  // read
#define DEQUANTIZE_BIASES 2  // read
#define DEQUANTIZE_OUT 3  // write
#define DEQUANTIZE_PARAMS 4

struct DequantizeParams {
  uint32_t cols;
  uint32_t groupSize;
};
static_assert(sizeof(DequantizeParams) == 8, "DequantizeParams must match the declaration of dequantize");
