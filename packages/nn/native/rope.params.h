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
#ifndef __METAL_VERSION__
  uint32_t scratch[2];  // byte offsets
#endif
};
#ifdef __METAL_VERSION__
static_assert(sizeof(RopeParams) == 16, "RopeParams must match the declaration of rope");
#else
static_assert(sizeof(RopeParams) == 24, "RopeParams must match the declaration of rope");
#endif
#ifndef __METAL_VERSION__
struct RopeScratch {
  float* cosines;
  float* sines;
};
inline RopeScratch scratch_of(const MlxtsCpuLaunch& l, const RopeParams& p) {
  unsigned char* memory = static_cast<unsigned char*>(l.scratch);
  return {
      reinterpret_cast<float*>(memory + p.scratch[0]),
      reinterpret_cast<float*>(memory + p.scratch[1]),
  };
}
#endif
