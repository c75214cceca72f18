// Generated from the declaration of peak_multiply; `npm run gen` rewrites it.
#pragma once
#ifdef __METAL_VERSION__
#include <metal_stdlib>
#else
#include <stdint.h>
#endif

#define PEAK_MULTIPLY_OUT 0  // write
#define PEAK_MULTIPLY_PARAMS 1

struct PeakMultiplyParams {
  uint32_t iterations;
  float factor;
};
static_assert(sizeof(PeakMultiplyParams) == 8, "PeakMultiplyParams must match the declaration of peak_multiply");
