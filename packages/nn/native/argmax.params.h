// Generated from the declaration of argmax; `npm run gen` rewrites it.
#pragma once
#ifdef __METAL_VERSION__
#include <metal_stdlib>
#else
#include <stdint.h>
#include "cpu_kernel.h"
#endif

#define ARGMAX_LOGITS 0  // read
#define ARGMAX_IDS 1  // write
#define ARGMAX_PARAMS 2

struct ArgmaxParams {
  uint32_t dim;
  uint32_t scratch[1];  // byte offsets
};
static_assert(sizeof(ArgmaxParams) == 8, "ArgmaxParams must match the declaration of argmax");
#ifdef __METAL_VERSION__
struct ArgmaxScratch {
  threadgroup uchar* memory;
};
inline ArgmaxScratch scratch_of(threadgroup uchar* memory, constant ArgmaxParams& p) {
  return {
      (threadgroup uchar*)(memory + p.scratch[0]),
  };
}
#else
struct ArgmaxScratch {
  uint8_t* memory;
};
inline ArgmaxScratch scratch_of(const MlxtsCpuLaunch& l, const ArgmaxParams& p) {
  unsigned char* memory = static_cast<unsigned char*>(l.scratch);
  return {
      reinterpret_cast<uint8_t*>(memory + p.scratch[0]),
  };
}
#endif
