// Generated from the declaration of split; `npm run gen` rewrites it.
#pragma once
#ifdef __METAL_VERSION__
#include <metal_stdlib>
#else
#include <stdint.h>
#endif

#define SPLIT_X 0  // read
#define SPLIT_OUT_A 1  // write
#define SPLIT_OUT_B 2  // write
#define SPLIT_OUT_C 3  // write?
#define SPLIT_OUT_D 4  // write?
#define SPLIT_PARAMS 5
#define SPLIT_HAS_OUT_C 8u
#define SPLIT_HAS_OUT_D 16u
#ifdef __METAL_VERSION__
#define SPLIT_PER_THREAD 4
#endif

struct SplitParams {
  uint32_t dim;
  uint32_t rows;
  uint32_t beginA;
  uint32_t sizeA;
  uint32_t beginB;
  uint32_t sizeB;
  uint32_t beginC;
  uint32_t sizeC;
  uint32_t beginD;
  uint32_t sizeD;
  uint32_t present;  // a bit for each buffer
#ifndef __METAL_VERSION__
  uint32_t rowsPerThreadgroup;
#endif
};
#ifdef __METAL_VERSION__
static_assert(sizeof(SplitParams) == 44, "SplitParams must match the declaration of split");
#else
static_assert(sizeof(SplitParams) == 48, "SplitParams must match the declaration of split");
#endif
