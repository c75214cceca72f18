// Generated from the declaration of functions; `npm run gen` rewrites it.
#pragma once
#ifdef __METAL_VERSION__
#include <metal_stdlib>
#else
#include <stdint.h>
#endif

#define FUNCTIONS_X 0  // read
#define FUNCTIONS_EXP 1  // write
#define FUNCTIONS_LOG 2  // write
#define FUNCTIONS_SIGMOID 3  // write
#define FUNCTIONS_SILU 4  // write
#define FUNCTIONS_SILU_FOR_BF16 5  // write
#define FUNCTIONS_PARAMS 6

struct FunctionsParams {
  uint32_t count;
};
static_assert(sizeof(FunctionsParams) == 4, "FunctionsParams must match the declaration of functions");
