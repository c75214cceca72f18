// Generated from the declaration of rope_yarn; `npm run gen` rewrites it.
#pragma once
#ifdef __METAL_VERSION__
#include <metal_stdlib>
#else
#include <stdint.h>
#endif

#define ROPE_YARN_X 0  // read
#define ROPE_YARN_K 1  // read?
#define ROPE_YARN_POSITIONS 2  // read
#define ROPE_YARN_TABLE 3  // read
#define ROPE_YARN_OUT 4  // write
#define ROPE_YARN_OUT_K 5  // write?
#define ROPE_YARN_PARAMS 6
#define ROPE_YARN_FAULT 7
#define ROPE_YARN_HAS_K 2u
#define ROPE_YARN_HAS_OUT_K 32u
#define ROPE_YARN_FAULT_POSITION 1

struct RopeYarnParams {
  uint32_t tokens;
  uint32_t length;
  uint32_t heads;
  uint32_t dim;
  uint32_t first;
  uint32_t kHeads;
  uint32_t kDim;
  uint32_t kFirst;
  uint32_t pairs;
  uint32_t rows;
  uint32_t perToken;
  uint32_t interleaved;
  uint32_t present;  // a bit for each buffer
};
static_assert(sizeof(RopeYarnParams) == 52, "RopeYarnParams must match the declaration of rope_yarn");
