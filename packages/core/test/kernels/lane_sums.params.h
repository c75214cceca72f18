// Generated from the declaration of lane_sums; `npm run gen` rewrites it.
#pragma once
#ifdef __METAL_VERSION__
#include <metal_stdlib>
#else
#include <stdint.h>
#endif

#define LANE_SUMS_X 0  // read
#define LANE_SUMS_BYTES 1  // read
#define LANE_SUMS_LANES 2  // write
#define LANE_SUMS_FOUR 3  // write
#define LANE_SUMS_ALL 4  // write
#define LANE_SUMS_ONE 5  // write
#define LANE_SUMS_MOST 6  // write
#define LANE_SUMS_DOTS 7  // write
#define LANE_SUMS_PARAMS 8

struct LaneSumsParams {
  uint32_t unused;
};
static_assert(sizeof(LaneSumsParams) == 4, "LaneSumsParams must match the declaration of lane_sums");
