// Generated from the declaration of increment; `npm run gen` rewrites it.
#pragma once
#ifdef __METAL_VERSION__
#include <metal_stdlib>
#else
#include <stdint.h>
#endif

#define INCREMENT_X 0  // read
#define INCREMENT_OUT 1  // write
#define INCREMENT_PARAMS 2

struct IncrementParams {
  uint32_t perGroup;
  uint32_t microseconds;
};
static_assert(sizeof(IncrementParams) == 8, "IncrementParams must match the declaration of increment");
