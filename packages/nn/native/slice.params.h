// Generated from the declaration of slice; `npm run gen` rewrites it.
#pragma once
#ifdef __METAL_VERSION__
#include <metal_stdlib>
#else
#include <stdint.h>
#include "cpu_kernel.h"
#endif

#define SLICE_X 0  // read
#define SLICE_OUT 1  // write
#define SLICE_PARAMS 2
#define SLICE_PER_THREAD 4

struct SliceParams {
  uint32_t dim;
  uint32_t begin;
  uint32_t size;
  uint32_t rows;
  uint32_t rowsPerThreadgroup;
  uint32_t scratch[1];  // byte offsets
};
static_assert(sizeof(SliceParams) == 24, "SliceParams must match the declaration of slice");
#ifdef __METAL_VERSION__
struct SliceScratch {
  threadgroup uchar* memory;
};
inline SliceScratch scratch_of(threadgroup uchar* memory, constant SliceParams& p) {
  return {
      (threadgroup uchar*)(memory + p.scratch[0]),
  };
}
#else
struct SliceScratch {
  uint8_t* memory;
};
inline SliceScratch scratch_of(const MlxtsCpuLaunch& l, const SliceParams& p) {
  unsigned char* memory = static_cast<unsigned char*>(l.scratch);
  return {
      reinterpret_cast<uint8_t*>(memory + p.scratch[0]),
  };
}
#endif
