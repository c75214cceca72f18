// Generated from the declaration of peak_read; `npm run gen` rewrites it.
#pragma once
#ifdef __METAL_VERSION__
#include <metal_stdlib>
#else
#include <stdint.h>
#endif

#define PEAK_READ_X 0  // read
#define PEAK_READ_OUT 1  // write
#define PEAK_READ_PARAMS 2

struct PeakReadParams {
  uint32_t perGroup;
  uint32_t repeats;
};
static_assert(sizeof(PeakReadParams) == 8, "PeakReadParams must match the declaration of peak_read");
