// Generated from the declaration of mla_merge; `npm run gen` rewrites it.
#pragma once
#ifdef __METAL_VERSION__
#include <metal_stdlib>
#else
#include <stdint.h>
#endif

#define MLA_MERGE_PARTIAL 0  // read
#define MLA_MERGE_LENGTHS 1  // read
#define MLA_MERGE_VC 2  // write
#define MLA_MERGE_LSE 3  // write?
#define MLA_MERGE_PARAMS 4
#define MLA_MERGE_HAS_LSE 8u

struct MlaMergeParams {
  uint32_t rows;
  uint32_t rank;
  uint32_t capacity;
  uint32_t mostPieces;
  uint32_t pieces;
  uint32_t present;  // a bit for each buffer
};
static_assert(sizeof(MlaMergeParams) == 24, "MlaMergeParams must match the declaration of mla_merge");
