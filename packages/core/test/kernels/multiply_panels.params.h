// Generated from the declaration of multiply_panels; `npm run gen` rewrites it.
#pragma once
#ifdef __METAL_VERSION__
#include <metal_stdlib>
#else
#include <stdint.h>
#endif

#define MULTIPLY_PANELS_A 0  // read
#define MULTIPLY_PANELS_B 1  // read
#define MULTIPLY_PANELS_FACTORS 2  // read?
#define MULTIPLY_PANELS_PANELS 3  // readWrite
#define MULTIPLY_PANELS_C 4  // readWrite
#define MULTIPLY_PANELS_PARAMS 5
#define MULTIPLY_PANELS_HAS_FACTORS 4u

struct MultiplyPanelsParams {
  uint32_t m;
  uint32_t n;
  uint32_t k;
  uint32_t cStride;
  uint32_t transposed;
  uint32_t present;  // a bit for each buffer
};
static_assert(sizeof(MultiplyPanelsParams) == 24, "MultiplyPanelsParams must match the declaration of multiply_panels");
