// Generated from the declaration of argmax_merge; `npm run gen` rewrites it.
#pragma once
#ifdef __METAL_VERSION__
#include <metal_stdlib>
#else
#include <stdint.h>
#endif

#define ARGMAX_MERGE_LARGEST 0  // read
#define ARGMAX_MERGE_IDS 1  // write
#define ARGMAX_MERGE_PARAMS 2

struct ArgmaxMergeParams {
  uint32_t pieces;
};
static_assert(sizeof(ArgmaxMergeParams) == 4, "ArgmaxMergeParams must match the declaration of argmax_merge");
