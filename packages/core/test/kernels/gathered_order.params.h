// Generated from the declaration of gathered_order; `npm run gen` rewrites it.
#pragma once
#ifdef __METAL_VERSION__
#include <metal_stdlib>
#else
#include <stdint.h>
#endif

#define GATHERED_ORDER_RHS_INDICES 0  // read
#define GATHERED_ORDER_LHS_INDICES 1  // read?
#define GATHERED_ORDER_ORDER 2  // read?
#define GATHERED_ORDER_OFFSETS 3  // read?
#define GATHERED_ORDER_ROWS 4  // write
#define GATHERED_ORDER_FOUND 5  // write
#define GATHERED_ORDER_PARAMS 6
#define GATHERED_ORDER_FAULT 7
#define GATHERED_ORDER_HAS_LHS_INDICES 2u
#define GATHERED_ORDER_HAS_ORDER 4u
#define GATHERED_ORDER_HAS_OFFSETS 8u
#define GATHERED_ORDER_FAULT_RHS_INDICES 1
#define GATHERED_ORDER_FAULT_LHS_INDICES 2
#define GATHERED_ORDER_FAULT_OFFSETS 3
#define GATHERED_ORDER_FAULT_ORDER 4
#define GATHERED_ORDER_MOST 4

struct GatheredOrderParams {
  uint32_t pairs;
  uint32_t m;
  uint32_t matrices;
  uint32_t lefts;
  uint32_t rhsCount;
  uint32_t lhsCount;
  uint32_t signedIndices;
  uint32_t size0;
  uint32_t size1;
  uint32_t left0;
  uint32_t left1;
  uint32_t left2;
  uint32_t right0;
  uint32_t right1;
  uint32_t right2;
  uint32_t present;  // a bit for each buffer
};
static_assert(sizeof(GatheredOrderParams) == 64, "GatheredOrderParams must match the declaration of gathered_order");
