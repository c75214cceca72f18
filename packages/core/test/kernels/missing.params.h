// Generated from the declaration of missing; `npm run gen` rewrites it.
#pragma once
#ifndef __METAL_VERSION__
#include <stdint.h>
#endif

#define MISSING_X 0  // read
#define MISSING_PARAMS 1

struct MissingParams {
  uint32_t unused;
};
static_assert(sizeof(MissingParams) == 4, "MissingParams must match the declaration of missing");
