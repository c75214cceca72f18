// Generated from the declaration of mask_values; `npm run gen` rewrites it.
#pragma once
#ifdef __METAL_VERSION__
#include <metal_stdlib>
#else
#include <stdint.h>
#endif

#define MASK_VALUES_V 0  // read
#define MASK_VALUES_BETA 1  // read
#define MASK_VALUES_MASK 2  // read
#define MASK_VALUES_V_KEPT 3  // write
#define MASK_VALUES_BETA_KEPT 4  // write
#define MASK_VALUES_PARAMS 5
#ifndef __METAL_VERSION__
#define MASK_VALUES_TOKENS_PER_THREADGROUP 32
#endif

struct MaskValuesParams {
  uint32_t tokens;
  uint32_t heads;
  uint32_t valueDim;
};
static_assert(sizeof(MaskValuesParams) == 12, "MaskValuesParams must match the declaration of mask_values");
