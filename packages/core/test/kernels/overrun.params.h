// Generated from the declaration of overrun; `npm run gen` rewrites it.
#pragma once
#ifdef __METAL_VERSION__
#include <metal_stdlib>
#else
#include <stdint.h>
#include "cpu_kernel.h"
#endif

#define OVERRUN_OUT 0  // write
#define OVERRUN_PARAMS 1
#define OVERRUN_HEADS 3
#ifdef __METAL_VERSION__
#define OVERRUN_ROWS 7
#else
#define OVERRUN_ROWS 5
#endif

struct OverrunParams {
  uint32_t array;
  uint32_t extra;
#ifndef __METAL_VERSION__
  uint32_t columns;
  uint32_t scratch[3];  // byte offsets
#endif
};
#ifdef __METAL_VERSION__
static_assert(sizeof(OverrunParams) == 8, "OverrunParams must match the declaration of overrun");
#else
static_assert(sizeof(OverrunParams) == 24, "OverrunParams must match the declaration of overrun");
#endif
#ifndef __METAL_VERSION__
struct OverrunScratch {
  float* state;
  uint8_t* nothing;
  uint16_t* codes;
};
inline OverrunScratch scratch_of(const MlxtsCpuLaunch& l, const OverrunParams& p) {
  unsigned char* memory = static_cast<unsigned char*>(l.scratch);
  return {
      reinterpret_cast<float*>(memory + p.scratch[0]),
      reinterpret_cast<uint8_t*>(memory + p.scratch[1]),
      reinterpret_cast<uint16_t*>(memory + p.scratch[2]),
  };
}
#endif
