// Generated from the declaration of mask_values; `npm run gen` rewrites it.
#pragma once
#ifdef __METAL_VERSION__
#include <metal_stdlib>
#else
#include <stdint.h>
#include "cpu_kernel.h"
#endif

#define MASK_VALUES_V 0  // read
#define MASK_VALUES_BETA 1  // read
#define MASK_VALUES_MASK 2  // read
#define MASK_VALUES_V_KEPT 3  // write
#define MASK_VALUES_BETA_KEPT 4  // write
#define MASK_VALUES_PARAMS 5

struct MaskValuesParams {
  uint32_t tokens;
  uint32_t heads;
  uint32_t valueDim;
  uint32_t tokensPerThreadgroup;
  uint32_t scratch[1];  // byte offsets
};
static_assert(sizeof(MaskValuesParams) == 20, "MaskValuesParams must match the declaration of mask_values");
#ifdef __METAL_VERSION__
struct MaskValuesScratch {
  threadgroup uchar* memory;
};
inline MaskValuesScratch scratch_of(threadgroup uchar* memory, constant MaskValuesParams& p) {
  return {
      (threadgroup uchar*)(memory + p.scratch[0]),
  };
}
#else
struct MaskValuesScratch {
  uint8_t* memory;
};
inline MaskValuesScratch scratch_of(const MlxtsCpuLaunch& l, const MaskValuesParams& p) {
  unsigned char* memory = static_cast<unsigned char*>(l.scratch);
  return {
      reinterpret_cast<uint8_t*>(memory + p.scratch[0]),
  };
}
#endif
