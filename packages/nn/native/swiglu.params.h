// Generated from the declaration of swiglu; `npm run gen` rewrites it.
#pragma once
#ifdef __METAL_VERSION__
#include <metal_stdlib>
#else
#include <stdint.h>
#endif

#define SWIGLU_GATE 0  // read
#define SWIGLU_UP 1  // read
#define SWIGLU_OUT 2  // write
#define SWIGLU_PARAMS 3
#ifdef __METAL_VERSION__
#define SWIGLU_BLOCK 1024
#else
#define SWIGLU_BLOCK 4096
#endif

struct SwigluParams {
  uint32_t tail;
};
static_assert(sizeof(SwigluParams) == 4, "SwigluParams must match the declaration of swiglu");
