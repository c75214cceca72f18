// Generated from the declaration of chunk_inverse; `npm run gen` rewrites it.
#pragma once
#ifdef __METAL_VERSION__
#include <metal_stdlib>
#else
#include <stdint.h>
#endif

#define CHUNK_INVERSE_A 0  // read
#define CHUNK_INVERSE_X 1  // write
#define CHUNK_INVERSE_PARAMS 2
#define CHUNK_INVERSE_PAD 4

struct ChunkInverseParams {
  uint32_t tokens;
  uint32_t heads;
  uint32_t chunkLength;
};
static_assert(sizeof(ChunkInverseParams) == 12, "ChunkInverseParams must match the declaration of chunk_inverse");
