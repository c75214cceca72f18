// Generated from the declaration of accumulate; `npm run gen` rewrites it.
#pragma once
#ifdef __METAL_VERSION__
#include <metal_stdlib>
#else
#include <stdint.h>
#endif

#define ACCUMULATE_X 0  // read
#define ACCUMULATE_Y 1  // read?
#define ACCUMULATE_TOTAL 2  // readWrite
#define ACCUMULATE_PARAMS 3
#define ACCUMULATE_HAS_Y 2u

struct AccumulateParams {
  uint32_t present;  // a bit for each buffer
};
static_assert(sizeof(AccumulateParams) == 4, "AccumulateParams must match the declaration of accumulate");
