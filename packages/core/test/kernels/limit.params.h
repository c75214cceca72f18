// Generated from the declaration of limit; `npm run gen` rewrites it.
#pragma once
#ifndef __METAL_VERSION__
#include <stdint.h>
#endif

#define LIMIT_X 0  // read
#define LIMIT_OUT 1  // write
#define LIMIT_PARAMS 2

struct LimitParams {
  uint32_t limit;
};
static_assert(sizeof(LimitParams) == 4, "LimitParams must match the declaration of limit");
