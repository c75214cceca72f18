// Generated from the declaration of rope; `npm run gen` rewrites it.
#pragma once
#ifdef __METAL_VERSION__
#include <metal_stdlib>
#else
#include <stdint.h>
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
};
static_assert(sizeof(RopeParams) == 16, "RopeParams must match the declaration of rope");
