// Generated from the declaration of launch; `npm run gen` rewrites it.
#pragma once
#ifdef __METAL_VERSION__
#include <metal_stdlib>
#else
#include <stdint.h>
#include "cpu_kernel.h"
#endif

#define LAUNCH_ABSENT 0  // read?
#define LAUNCH_OUT 1  // write
#define LAUNCH_PARAMS 2
#define LAUNCH_HAS_ABSENT 1u

struct LaunchParams {
  uint32_t u;
  int32_t i;
  float f;
  uint32_t present;  // a bit for each buffer
  uint32_t scratchBytes;
  uint32_t scratch[1];  // byte offsets
};
static_assert(sizeof(LaunchParams) == 24, "LaunchParams must match the declaration of launch");
#ifdef __METAL_VERSION__
struct LaunchScratch {
  threadgroup uchar* bytes;
};
inline LaunchScratch scratch_of(threadgroup uchar* memory, constant LaunchParams& p) {
  return {
      (threadgroup uchar*)(memory + p.scratch[0]),
  };
}
#else
struct LaunchScratch {
  uint8_t* bytes;
};
inline LaunchScratch scratch_of(const MlxtsCpuLaunch& l, const LaunchParams& p) {
  unsigned char* memory = static_cast<unsigned char*>(l.scratch);
  return {
      reinterpret_cast<uint8_t*>(memory + p.scratch[0]),
  };
}
#endif
