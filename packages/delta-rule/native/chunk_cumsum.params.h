// Generated from the declaration of chunk_cumsum; `npm run gen` rewrites it.
#pragma once
#ifdef __METAL_VERSION__
#include <metal_stdlib>
#else
#include <stdint.h>
#endif

#define CHUNK_CUMSUM_G 0  // read
#define CHUNK_CUMSUM_SUM 1  // write
#define CHUNK_CUMSUM_SUM_LOW 2  // write?
#define CHUNK_CUMSUM_PARAMS 3
#define CHUNK_CUMSUM_HAS_SUM_LOW 4u

struct ChunkCumsumParams {
  uint32_t sequences;
  uint32_t tokens;
  uint32_t heads;
  uint32_t chunkLength;
  uint32_t present;  // a bit for each buffer
};
static_assert(sizeof(ChunkCumsumParams) == 20, "ChunkCumsumParams must match the declaration of chunk_cumsum");
