// Generated from the declaration of moe_combine; `npm run gen` rewrites it.
#pragma once
#ifdef __METAL_VERSION__
#include <metal_stdlib>
#else
#include <stdint.h>
#endif

#define MOE_COMBINE_Y 0  // read
#define MOE_COMBINE_WEIGHTS 1  // read
#define MOE_COMBINE_ORDER 2  // read?
#define MOE_COMBINE_PLACES 3  // read?
#define MOE_COMBINE_SHARED 4  // read?
#define MOE_COMBINE_SHARED_GATE 5  // read?
#define MOE_COMBINE_RESIDUAL 6  // read?
#define MOE_COMBINE_OUT 7  // write
#define MOE_COMBINE_PARAMS 8
#define MOE_COMBINE_FAULT 9
#define MOE_COMBINE_HAS_ORDER 4u
#define MOE_COMBINE_HAS_PLACES 8u
#define MOE_COMBINE_HAS_SHARED 16u
#define MOE_COMBINE_HAS_SHARED_GATE 32u
#define MOE_COMBINE_HAS_RESIDUAL 64u
#define MOE_COMBINE_FAULT_MISSING 1

struct MoeCombineParams {
  uint32_t tokens;
  uint32_t topK;
  uint32_t dim;
  uint32_t present;  // a bit for each buffer
};
static_assert(sizeof(MoeCombineParams) == 16, "MoeCombineParams must match the declaration of moe_combine");
