// Generated from the declaration of dot_in_load_order; `npm run gen` rewrites it.
#pragma once
#ifdef __METAL_VERSION__
#include <metal_stdlib>
#else
#include <stdint.h>
#endif

#define DOT_IN_LOAD_ORDER_W 0  // read
#define DOT_IN_LOAD_ORDER_X 1  // read
#define DOT_IN_LOAD_ORDER_ORDERED 2  // write
#define DOT_IN_LOAD_ORDER_BACK 3  // readWrite
#define DOT_IN_LOAD_ORDER_DOT 4  // write
#define DOT_IN_LOAD_ORDER_PARAMS 5

struct DotInLoadOrderParams {
  uint32_t n;
};
static_assert(sizeof(DotInLoadOrderParams) == 4, "DotInLoadOrderParams must match the declaration of dot_in_load_order");
