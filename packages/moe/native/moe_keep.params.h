// Generated from the declaration of moe_keep; `npm run gen` rewrites it.
#pragma once
#ifdef __METAL_VERSION__
#include <metal_stdlib>
#else
#include <stdint.h>
#include "cpu_kernel.h"
#endif

#define MOE_KEEP_INDICES 0  // read
#define MOE_KEEP_AGES 1  // read
#define MOE_KEEP_AGED 2  // write
#define MOE_KEEP_CHOSEN 3  // write
#define MOE_KEEP_EVICTED 4  // write
#define MOE_KEEP_PARAMS 5
#define MOE_KEEP_FAULT 6
#define MOE_KEEP_FAULT_INDEX 1
#ifdef __METAL_VERSION__
#define MOE_KEEP_FLAGS_TOGETHER 32
#endif

struct MoeKeepParams {
  uint32_t pairs;
  uint32_t experts;
  uint32_t keep;
#ifdef __METAL_VERSION__
  uint32_t scratch[1];  // byte offsets
#else
  uint32_t scratch[3];  // byte offsets
#endif
};
#ifdef __METAL_VERSION__
static_assert(sizeof(MoeKeepParams) == 16, "MoeKeepParams must match the declaration of moe_keep");
#else
static_assert(sizeof(MoeKeepParams) == 24, "MoeKeepParams must match the declaration of moe_keep");
#endif
#ifdef __METAL_VERSION__
struct MoeKeepScratch {
  threadgroup uint* wanted;
};
inline MoeKeepScratch scratch_of(threadgroup uchar* memory, constant MoeKeepParams& p) {
  return {
      (threadgroup uint*)(memory + p.scratch[0]),
  };
}
#else
struct MoeKeepScratch {
  uint32_t* age;
  uint8_t* wanted;
  uint32_t* oldest;
};
inline MoeKeepScratch scratch_of(const MlxtsCpuLaunch& l, const MoeKeepParams& p) {
  unsigned char* memory = static_cast<unsigned char*>(l.scratch);
  return {
      reinterpret_cast<uint32_t*>(memory + p.scratch[0]),
      reinterpret_cast<uint8_t*>(memory + p.scratch[1]),
      reinterpret_cast<uint32_t*>(memory + p.scratch[2]),
  };
}
#endif
