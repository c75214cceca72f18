// Generated from the declaration of mixed_product; `npm run gen` rewrites it.
#pragma once
#ifdef __METAL_VERSION__
#include <metal_stdlib>
#else
#include <stdint.h>
#endif

#define MIXED_PRODUCT_A 0  // read
#define MIXED_PRODUCT_B 1  // read
#define MIXED_PRODUCT_OUT 2  // write
#define MIXED_PRODUCT_PARAMS 3
#ifdef __METAL_VERSION__
#define MIXED_PRODUCT_M 16
#define MIXED_PRODUCT_N 32
#define MIXED_PRODUCT_K 32
#endif

struct MixedProductParams {
  uint32_t transposed;
#ifdef __METAL_VERSION__
  uint32_t scratch[2];  // byte offsets
#endif
};
#ifdef __METAL_VERSION__
static_assert(sizeof(MixedProductParams) == 12, "MixedProductParams must match the declaration of mixed_product");
#else
static_assert(sizeof(MixedProductParams) == 4, "MixedProductParams must match the declaration of mixed_product");
#endif
#ifdef __METAL_VERSION__
struct MixedProductScratch {
  threadgroup float* a;
  threadgroup float* b;
};
inline MixedProductScratch scratch_of(threadgroup uchar* memory, constant MixedProductParams& p) {
  return {
      (threadgroup float*)(memory + p.scratch[0]),
      (threadgroup float*)(memory + p.scratch[1]),
  };
}
#endif
