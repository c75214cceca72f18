// Generated from the declaration of chunk_inverse; `npm run gen` rewrites it.
#pragma once
#ifdef __METAL_VERSION__
#include <metal_stdlib>
#else
#include <stdint.h>
#endif

#define CHUNK_INVERSE_A 0  // read
#define CHUNK_INVERSE_CU_SEQLENS 1  // read?
#define CHUNK_INVERSE_X 2  // write
#define CHUNK_INVERSE_PARAMS 3
#define CHUNK_INVERSE_FAULT 4
#define CHUNK_INVERSE_HAS_CU_SEQLENS 2u
#define CHUNK_INVERSE_FAULT_CU_SEQLENS 1
#define CHUNK_INVERSE_PAD 4

struct ChunkInverseParams {
  uint32_t sequences;
  uint32_t tokens;
  uint32_t heads;
  uint32_t chunkLength;
  uint32_t lastTokens;
  uint32_t present;  // a bit for each buffer
};
static_assert(sizeof(ChunkInverseParams) == 24, "ChunkInverseParams must match the declaration of chunk_inverse");
