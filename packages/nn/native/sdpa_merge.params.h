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
  uint32_t mostPieces;
#ifdef __METAL_VERSION__
  uint32_t scratch[1];  // byte offsets
#endif
};
#ifdef __METAL_VERSION__
static_assert(sizeof(SdpaMergeParams) == 32, "SdpaMergeParams must match the declaration of sdpa_merge");
#else
static_assert(sizeof(SdpaMergeParams) == 28, "SdpaMergeParams must match the declaration of sdpa_merge");
#endif
#ifdef __METAL_VERSION__
struct SdpaMergeScratch {
  threadgroup float* sums;
};
inline SdpaMergeScratch scratch_of(threadgroup uchar* memory, constant SdpaMergeParams& p) {
  return {
      (threadgroup float*)(memory + p.scratch[0]),
  };
}
#endif
