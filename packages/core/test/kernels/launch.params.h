// Generated from the declaration of launch; `npm run gen` rewrites it.
#pragma once
#ifndef __METAL_VERSION__
#include <stdint.h>
#endif

#define LAUNCH_ABSENT 0  // read?
#define LAUNCH_OUT 1  // write
#define LAUNCH_PARAMS 2

struct LaunchParams {
  uint32_t u;
  int32_t i;
  float f;
};
static_assert(sizeof(LaunchParams) == 12, "LaunchParams must match the declaration of launch");
