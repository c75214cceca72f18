// Generated from the declaration of elementwise_mul; `npm run gen` rewrites it.
#pragma once
#ifdef __METAL_VERSION__
#include <metal_stdlib>
#else
#include <stdint.h>
#endif

#define ELEMENTWISE_MUL_A 0  // read
#define ELEMENTWISE_MUL_B 1  // read
#define ELEMENTWISE_MUL_OUT 2  // write
#define ELEMENTWISE_MUL_PARAMS 3
#ifdef __METAL_VERSION__
#define ELEMENTWISE_MUL_BLOCK 1024
#else
#define ELEMENTWISE_MUL_BLOCK 4096
#endif

struct ElementwiseMulParams {
  uint32_t tail;
};
static_assert(sizeof(ElementwiseMulParams) == 4, "ElementwiseMulParams must match the declaration of elementwise_mul");
