// Generated from the declaration of chunk_cumsum; `npm run gen` rewrites it.
#pragma once
#ifdef __METAL_VERSION__
#include <metal_stdlib>
#else
#include <stdint.h>
#endif

#define CHUNK_CUMSUM_G 0  // read
#define CHUNK_CUMSUM_CU_SEQLENS 1  // read?
#define CHUNK_CUMSUM_MASK 2  // read?
#define CHUNK_CUMSUM_CUMULATIVE_GATE 3  // write
#define CHUNK_CUMSUM_CUMULATIVE_GATE_LOW 4  // write?
#define CHUNK_CUMSUM_PARAMS 5
#define CHUNK_CUMSUM_FAULT 6
#define CHUNK_CUMSUM_HAS_CU_SEQLENS 2u
#define CHUNK_CUMSUM_HAS_MASK 4u
#define CHUNK_CUMSUM_HAS_CUMULATIVE_GATE_LOW 16u
#define CHUNK_CUMSUM_FAULT_CU_SEQLENS 1
#ifdef __METAL_VERSION__
#ifdef MLXTS_CUDA
#define CHUNK_CUMSUM_AHEAD 32
#else
#define CHUNK_CUMSUM_AHEAD 8
#endif
#endif

struct ChunkCumsumParams {
  uint32_t sequences;
  uint32_t tokens;
  uint32_t heads;
  uint32_t channels;
  uint32_t chunkLength;
  uint32_t lastTokens;
  float gateFactor;
  uint32_t present;  // a bit for each buffer
};
static_assert(sizeof(ChunkCumsumParams) == 32, "ChunkCumsumParams must match the declaration of chunk_cumsum");
