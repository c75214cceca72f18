// Generated from the declaration of peak_fma; `npm run gen` rewrites it.
#pragma once
#ifdef __METAL_VERSION__
#include <metal_stdlib>
#else
#include <stdint.h>
#endif

#define PEAK_FMA_OUT 0  // write
#define PEAK_FMA_PARAMS 1

struct PeakFmaParams {
  uint32_t iterations;
  float factor;
};
static_assert(sizeof(PeakFmaParams) == 8, "PeakFmaParams must match the declaration of peak_fma");
