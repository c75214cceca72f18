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
#ifdef __METAL_VERSION__
#define SLICE_PER_THREAD 4
#endif

struct SliceParams {
  uint32_t dim;
  uint32_t begin;
  uint32_t size;
  uint32_t rows;
#ifndef __METAL_VERSION__
  uint32_t rowsPerThreadgroup;
#endif
};
#ifdef __METAL_VERSION__
static_assert(sizeof(SliceParams) == 16, "SliceParams must match the declaration of slice");
#else
static_assert(sizeof(SliceParams) == 20, "SliceParams must match the declaration of slice");
#endif
