// Generated from the declaration of rope_yarn; `npm run gen` rewrites it.
#pragma once
#ifdef __METAL_VERSION__
#include <metal_stdlib>
#else
#include <stdint.h>
#endif

#define ROPE_YARN_X 0  // read
#define ROPE_YARN_POSITIONS 1  // read
#define ROPE_YARN_TABLE 2  // read
#define ROPE_YARN_OUT 3  // write
#define ROPE_YARN_PARAMS 4
#define ROPE_YARN_FAULT 5
#define ROPE_YARN_FAULT_POSITION 1

struct RopeYarnParams {
  uint32_t tokens;
  uint32_t length;
  uint32_t heads;
  uint32_t dim;
  uint32_t first;
  uint32_t pairs;
  uint32_t rows;
  uint32_t perToken;
  uint32_t interleaved;
};
static_assert(sizeof(RopeYarnParams) == 36, "RopeYarnParams must match the declaration of rope_yarn");
