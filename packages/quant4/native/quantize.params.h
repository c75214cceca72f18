// Generated from the declaration of quantize; `npm run gen` rewrites it.
#pragma once
#ifdef __METAL_VERSION__
#include <metal_stdlib>
#else
#include <stdint.h>
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
};
static_assert(sizeof(QuantizeParams) == 12, "QuantizeParams must match the declaration of quantize");
