// Generated from the declaration of limit; `npm run gen` rewrites it.
#pragma once
#ifdef __METAL_VERSION__
#include <metal_stdlib>
#else
#include <stdint.h>
#endif

#define LIMIT_X 0  // read
#define LIMIT_OUT 1  // write
#define LIMIT_PARAMS 2
#define LIMIT_FAULT 3
#define LIMIT_FAULT_TOO_LARGE 1

struct LimitParams {
  uint32_t limit;
};
static_assert(sizeof(LimitParams) == 4, "LimitParams must match the declaration of limit");
