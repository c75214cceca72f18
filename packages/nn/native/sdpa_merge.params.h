// Generated from the declaration of sdpa_merge; `npm run gen` rewrites it.
#pragma once
#ifdef __METAL_VERSION__
#include <metal_stdlib>
#else
#include <stdint.h>
#include "cpu_kernel.h"
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
  uint32_t pieces;
  uint32_t scratch[1];  // byte offsets
};
static_assert(sizeof(SdpaMergeParams) == 24, "SdpaMergeParams must match the declaration of sdpa_merge");
#ifdef __METAL_VERSION__
struct SdpaMergeScratch {
  threadgroup uchar* memory;
};
inline SdpaMergeScratch scratch_of(threadgroup uchar* memory, constant SdpaMergeParams& p) {
  return {
      (threadgroup uchar*)(memory + p.scratch[0]),
  };
}
#else
struct SdpaMergeScratch {
  uint8_t* memory;
};
inline SdpaMergeScratch scratch_of(const MlxtsCpuLaunch& l, const SdpaMergeParams& p) {
  unsigned char* memory = static_cast<unsigned char*>(l.scratch);
  return {
      reinterpret_cast<uint8_t*>(memory + p.scratch[0]),
  };
}
#endif
