// Generated from the declaration of argmax; `npm run gen` rewrites it.
#pragma once
#ifdef __METAL_VERSION__
#include <metal_stdlib>
#else
#include <stdint.h>
#endif

#define ARGMAX_LOGITS 0  // read
#define ARGMAX_IDS 1  // write
#define ARGMAX_PARAMS 2

struct ArgmaxParams {
  uint32_t dim;
};
static_assert(sizeof(ArgmaxParams) == 4, "ArgmaxParams must match the declaration of argmax");
