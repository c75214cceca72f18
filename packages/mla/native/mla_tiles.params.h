// Generated from the declaration of mla_tiles; `npm run gen` rewrites it.
#pragma once
#ifdef __METAL_VERSION__
#include <metal_stdlib>
#else
#include <stdint.h>
#endif

#define MLA_TILES_QUERIES 0  // read
#define MLA_TILES_Q_PE 1  // read
#define MLA_TILES_LATENT_CACHE 2  // read
#define MLA_TILES_K_PE_CACHE 3  // read
#define MLA_TILES_LENGTHS 4  // read
#define MLA_TILES_TREE_MASK 5  // read?
#define MLA_TILES_PARTIAL 6  // write
#define MLA_TILES_PARAMS 7
#define MLA_TILES_FAULT 8
#define MLA_TILES_HAS_TREE_MASK 32u
#define MLA_TILES_FAULT_LENGTH 1
#define MLA_TILES_FAULT_NEW_ROWS 2
#ifdef __METAL_VERSION__
#define MLA_TILES_THREADS 256
#define MLA_TILES_TILE_ROWS 32
#define MLA_TILES_MOST_RANK 512
#define MLA_TILES_MOST_ROPE 64
#ifdef MLXTS_CUDA
#define MLA_TILES_TILE_KEYS 32
#define MLA_TILES_LEAST_QUERIES 16
#else
#define MLA_TILES_TILE_KEYS 16
#define MLA_TILES_LEAST_QUERIES 32
#endif
#endif

struct MlaTilesParams {
  uint32_t batch;
  uint32_t tokens;
  uint32_t heads;
  uint32_t rank;
  uint32_t rope;
  uint32_t capacity;
  uint32_t latentStride;
  uint32_t ropeStride;
  uint32_t sequenceStride;
  float scale;
  uint32_t causal;
  uint32_t mostPieces;
  uint32_t pieces;
  uint32_t present;  // a bit for each buffer
#ifdef __METAL_VERSION__
  uint32_t scratch[4];  // byte offsets
#endif
};
#ifdef __METAL_VERSION__
static_assert(sizeof(MlaTilesParams) == 72, "MlaTilesParams must match the declaration of mla_tiles");
#else
static_assert(sizeof(MlaTilesParams) == 56, "MlaTilesParams must match the declaration of mla_tiles");
#endif
#ifdef __METAL_VERSION__
struct MlaTilesScratch {
  threadgroup uint* length;
  threadgroup ushort* latents;
  threadgroup ushort* rotated;
  threadgroup float* scores;
};
inline MlaTilesScratch scratch_of(threadgroup uchar* memory, constant MlaTilesParams& p) {
  return {
      (threadgroup uint*)(memory + p.scratch[0]),
      (threadgroup ushort*)(memory + p.scratch[1]),
      (threadgroup ushort*)(memory + p.scratch[2]),
      (threadgroup float*)(memory + p.scratch[3]),
  };
}
#endif
