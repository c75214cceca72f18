// Generated from the declaration of product; `npm run gen` rewrites it.
#pragma once
#ifdef __METAL_VERSION__
#include <metal_stdlib>
#else
#include <stdint.h>
#endif

#define PRODUCT_A 0  // read
#define PRODUCT_B 1  // read
#define PRODUCT_OUT 2  // write
#define PRODUCT_PARAMS 3
#ifdef __METAL_VERSION__
#define PRODUCT_THREADS 128
#define PRODUCT_ROWS 64
#define PRODUCT_COLUMNS 64
#define PRODUCT_DEPTH 16
#endif

struct ProductParams {
  uint32_t m;
  uint32_t n;
  uint32_t k;
#ifdef __METAL_VERSION__
  uint32_t scratch[2];  // byte offsets
#endif
};
#ifdef __METAL_VERSION__
static_assert(sizeof(ProductParams) == 20, "ProductParams must match the declaration of product");
#else
static_assert(sizeof(ProductParams) == 12, "ProductParams must match the declaration of product");
#endif
#ifdef __METAL_VERSION__
struct ProductScratch {
  threadgroup float* a;
  threadgroup float* b;
};
inline ProductScratch scratch_of(threadgroup uchar* memory, constant ProductParams& p) {
  return {
      (threadgroup float*)(memory + p.scratch[0]),
      (threadgroup float*)(memory + p.scratch[1]),
  };
}
#endif
