// Generated from the declaration of slice; `npm run gen` rewrites it.
#pragma once
#ifdef __METAL_VERSION__
#include <metal_stdlib>
#else
#include <stdint.h>
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
};
static_assert(sizeof(SliceParams) == 20, "SliceParams must match the declaration of slice");
