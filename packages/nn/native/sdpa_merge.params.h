// Generated from the declaration of sdpa_merge; `npm run gen` rewrites it.
#pragma once
#ifdef __METAL_VERSION__
#include <metal_stdlib>
#else
#include <stdint.h>
#endif

#define SDPA_MERGE_PARTIAL 0  // read
#define SDPA_MERGE_LENGTHS 1  // read
#define SDPA_MERGE_OUT 2  // write
#define SDPA_MERGE_PARAMS 3

struct SdpaMergeParams {
  uint32_t tokens;
  uint32_t heads;
  uint32_t kvHeads;
  uint32_t dim;
  uint32_t capacity;
  uint32_t pieces;
};
static_assert(sizeof(SdpaMergeParams) == 24, "SdpaMergeParams must match the declaration of sdpa_merge");
