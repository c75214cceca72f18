// Generated from the declaration of launch; `npm run gen` rewrites it.
#pragma once
#ifdef __METAL_VERSION__
#include <metal_stdlib>
#else
#include <stdint.h>
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
};
static_assert(sizeof(LaunchParams) == 16, "LaunchParams must match the declaration of launch");
