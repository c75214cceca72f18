// Generated from the declaration of rope; `npm run gen` rewrites it.
#pragma once
#ifdef __METAL_VERSION__
#include <metal_stdlib>
#else
#include <stdint.h>
#include "cpu_kernel.h"
#endif

#define ROPE_X 0  // read
#define ROPE_POSITIONS 1  // read
#define ROPE_INVERSE_FREQUENCIES 2  // read
#define ROPE_OUT 3  // write
#define ROPE_PARAMS 4

struct RopeParams {
  uint32_t heads;
  uint32_t dim;
  uint32_t pairs;
  uint32_t interleaved;
  uint32_t scratch[1];  // byte offsets
};
static_assert(sizeof(RopeParams) == 20, "RopeParams must match the declaration of rope");
#ifdef __METAL_VERSION__
struct RopeScratch {
  threadgroup uchar* memory;
};
inline RopeScratch scratch_of(threadgroup uchar* memory, constant RopeParams& p) {
  return {
      (threadgroup uchar*)(memory + p.scratch[0]),
  };
}
#else
struct RopeScratch {
  uint8_t* memory;
};
inline RopeScratch scratch_of(const MlxtsCpuLaunch& l, const RopeParams& p) {
  unsigned char* memory = static_cast<unsigned char*>(l.scratch);
  return {
      reinterpret_cast<uint8_t*>(memory + p.scratch[0]),
  };
}
#endif
