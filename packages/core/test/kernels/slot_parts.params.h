// Generated from the declaration of slot_parts; `npm run gen` rewrites it.
#pragma once
#ifdef __METAL_VERSION__
#include <metal_stdlib>
#else
#include <stdint.h>
#endif

#define SLOT_PARTS_RHS_INDICES 0  // read
#define SLOT_PARTS_ORDER 1  // read?
#define SLOT_PARTS_OFFSETS 2  // read?
#define SLOT_PARTS_TAKEN 3  // write
#define SLOT_PARTS_BY 4  // write
#define SLOT_PARTS_PARAMS 5
#define SLOT_PARTS_HAS_ORDER 2u
#define SLOT_PARTS_HAS_OFFSETS 4u
#define SLOT_PARTS_MOST 4

struct SlotPartsParams {
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
static_assert(sizeof(SlotPartsParams) == 64, "SlotPartsParams must match the declaration of slot_parts");
