// Generated from the declaration of moe_route; `npm run gen` rewrites it.
#pragma once
#ifdef __METAL_VERSION__
#include <metal_stdlib>
#else
#include <stdint.h>
#include "cpu_kernel.h"
#endif

#define MOE_ROUTE_LOGITS 0  // read
#define MOE_ROUTE_BIAS 1  // read?
#define MOE_ROUTE_CHOICES 2  // write
#define MOE_ROUTE_GROUP_SCORES 3  // write
#define MOE_ROUTE_INDICES 4  // write
#define MOE_ROUTE_WEIGHTS 5  // write
#define MOE_ROUTE_PARAMS 6
#define MOE_ROUTE_HAS_BIAS 2u

struct MoeRouteParams {
  uint32_t experts;
  uint32_t topK;
  uint32_t groups;
  uint32_t topGroups;
  uint32_t softmax;
  uint32_t top2;
  uint32_t normalize;
  float scale;
  uint32_t present;  // a bit for each buffer
#ifdef __METAL_VERSION__
  uint32_t scratch[2];  // byte offsets
#else
  uint32_t scratch[3];  // byte offsets
#endif
};
#ifdef __METAL_VERSION__
static_assert(sizeof(MoeRouteParams) == 44, "MoeRouteParams must match the declaration of moe_route");
#else
static_assert(sizeof(MoeRouteParams) == 48, "MoeRouteParams must match the declaration of moe_route");
#endif
#ifdef __METAL_VERSION__
struct MoeRouteScratch {
  threadgroup float* partial;
  threadgroup uint* best;
};
inline MoeRouteScratch scratch_of(threadgroup uchar* memory, constant MoeRouteParams& p) {
  return {
      (threadgroup float*)(memory + p.scratch[0]),
      (threadgroup uint*)(memory + p.scratch[1]),
  };
}
#else
struct MoeRouteScratch {
  float* scores;
  uint32_t* chosen;
  uint32_t* bestGroups;
};
inline MoeRouteScratch scratch_of(const MlxtsCpuLaunch& l, const MoeRouteParams& p) {
  unsigned char* memory = static_cast<unsigned char*>(l.scratch);
  return {
      reinterpret_cast<float*>(memory + p.scratch[0]),
      reinterpret_cast<uint32_t*>(memory + p.scratch[1]),
      reinterpret_cast<uint32_t*>(memory + p.scratch[2]),
  };
}
#endif
