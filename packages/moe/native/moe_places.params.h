// Generated from the declaration of moe_places; `npm run gen` rewrites it.
#pragma once
#ifdef __METAL_VERSION__
#include <metal_stdlib>
#else
#include <stdint.h>
#endif

#define MOE_PLACES_ORDER 0  // read
#define MOE_PLACES_PLACES 1  // write
#define MOE_PLACES_PARAMS 2
#define MOE_PLACES_FAULT 3
#define MOE_PLACES_FAULT_ORDER 1
#ifdef __METAL_VERSION__
#define MOE_PLACES_BLOCK 256
#else
#define MOE_PLACES_BLOCK 16384
#endif

struct MoePlacesParams {
  uint32_t pairs;
};
static_assert(sizeof(MoePlacesParams) == 4, "MoePlacesParams must match the declaration of moe_places");
