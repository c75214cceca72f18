// Generated from the declaration of kept; `npm run gen` rewrites it.
#pragma once
#ifdef __METAL_VERSION__
#include <metal_stdlib>
#else
#include <stdint.h>
#include "cpu_kernel.h"
#endif

#define KEPT_OUT 0  // write
#define KEPT_PARAMS 1

struct KeptParams {
  uint32_t tag;
#ifndef __METAL_VERSION__
  uint32_t scratch[1];  // byte offsets
#endif
};
#ifdef __METAL_VERSION__
static_assert(sizeof(KeptParams) == 4, "KeptParams must match the declaration of kept");
#else
static_assert(sizeof(KeptParams) == 8, "KeptParams must match the declaration of kept");
#endif
#ifndef __METAL_VERSION__
struct KeptScratch {
  uint32_t* left;
};
inline KeptScratch scratch_of(const MlxtsCpuLaunch& l, const KeptParams& p) {
  unsigned char* memory = static_cast<unsigned char*>(l.scratch);
  return {
      reinterpret_cast<uint32_t*>(memory + p.scratch[0]),
  };
}
#endif
