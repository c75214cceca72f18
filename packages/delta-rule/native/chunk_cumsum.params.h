// Generated from the declaration of chunk_cumsum; `npm run gen` rewrites it.
#pragma once
#ifndef __METAL_VERSION__
#include <stdint.h>
#endif

#define CHUNK_CUMSUM_G 0  // read
#define CHUNK_CUMSUM_SUM 1  // write
#define CHUNK_CUMSUM_SUM_LOW 2  // write?
#define CHUNK_CUMSUM_PARAMS 3

struct ChunkCumsumParams {
  uint32_t tokens;
  uint32_t heads;
  uint32_t chunkLength;
};
static_assert(sizeof(ChunkCumsumParams) == 12, "ChunkCumsumParams must match the declaration of chunk_cumsum");
