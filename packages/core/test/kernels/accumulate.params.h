// Generated from the declaration of accumulate; `npm run gen` rewrites it.
#pragma once
#ifndef __METAL_VERSION__
#include <stdint.h>
#endif

#define ACCUMULATE_X 0  // read
#define ACCUMULATE_Y 1  // read?
#define ACCUMULATE_TOTAL 2  // readWrite
#define ACCUMULATE_PARAMS 3

struct AccumulateParams {
  uint32_t unused;
};
static_assert(sizeof(AccumulateParams) == 4, "AccumulateParams must match the declaration of accumulate");
