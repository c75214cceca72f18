// Generated from the declaration of gathered_pairs; `npm run gen` rewrites it.
#pragma once
#ifdef __METAL_VERSION__
#include <metal_stdlib>
#else
#include <stdint.h>
#endif

#define GATHERED_PAIRS_RHS_INDICES 0  // read
#define GATHERED_PAIRS_LHS_INDICES 1  // read?
#define GATHERED_PAIRS_MATRICES 2  // write
#define GATHERED_PAIRS_PARAMS 3
#define GATHERED_PAIRS_FAULT 4
#define GATHERED_PAIRS_HAS_LHS_INDICES 2u
#define GATHERED_PAIRS_FAULT_RHS_INDICES 1
#define GATHERED_PAIRS_FAULT_LHS_INDICES 2

struct GatheredPairsParams {
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
static_assert(sizeof(GatheredPairsParams) == 64, "GatheredPairsParams must match the declaration of gathered_pairs");
