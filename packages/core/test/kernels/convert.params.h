// Generated from the declaration of convert; `npm run gen` rewrites it.
#pragma once
#ifdef __METAL_VERSION__
#include <metal_stdlib>
#else
#include <stdint.h>
#endif

#define CONVERT_X 0  // read
#define CONVERT_OUT 1  // write
#define CONVERT_SCALAR 2  // write
#define CONVERT_PARAMS 3

struct ConvertParams {
  uint32_t count;
};
static_assert(sizeof(ConvertParams) == 4, "ConvertParams must match the declaration of convert");
