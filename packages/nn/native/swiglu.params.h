// Generated from the declaration of swiglu; `npm run gen` rewrites it.
#pragma once
#ifdef __METAL_VERSION__
#include <metal_stdlib>
#else
#include <stdint.h>
#include "cpu_kernel.h"
#endif

#define SWIGLU_GATE 0  // read
#define SWIGLU_UP 1  // read
#define SWIGLU_OUT 2  // write
#define SWIGLU_PARAMS 3

struct SwigluParams {
  uint32_t block;
  uint32_t tail;
  uint32_t scratch[1];  // byte offsets
};
static_assert(sizeof(SwigluParams) == 12, "SwigluParams must match the declaration of swiglu");
#ifdef __METAL_VERSION__
struct SwigluScratch {
  threadgroup uchar* memory;
};
inline SwigluScratch scratch_of(threadgroup uchar* memory, constant SwigluParams& p) {
  return {
      (threadgroup uchar*)(memory + p.scratch[0]),
  };
}
#else
struct SwigluScratch {
  uint8_t* memory;
};
inline SwigluScratch scratch_of(const MlxtsCpuLaunch& l, const SwigluParams& p) {
  unsigned char* memory = static_cast<unsigned char*>(l.scratch);
  return {
      reinterpret_cast<uint8_t*>(memory + p.scratch[0]),
  };
}
#endif
