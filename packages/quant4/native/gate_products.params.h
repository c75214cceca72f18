// Generated from the declaration of gate_products; `npm run gen` rewrites it.
#pragma once
#ifdef __METAL_VERSION__
#include <metal_stdlib>
#else
#include <stdint.h>
#endif

#define GATE_PRODUCTS_GATES 0  // read
#define GATE_PRODUCTS_UPS 1  // read
#define GATE_PRODUCTS_OUT 2  // write
#define GATE_PRODUCTS_PARAMS 3
#ifdef __METAL_VERSION__
#define GATE_PRODUCTS_BLOCK 1024
#else
#define GATE_PRODUCTS_BLOCK 4096
#endif

struct GateProductsParams {
  uint32_t tail;
};
static_assert(sizeof(GateProductsParams) == 4, "GateProductsParams must match the declaration of gate_products");
