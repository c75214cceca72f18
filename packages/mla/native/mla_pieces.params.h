// Generated from the declaration of mla_pieces; `npm run gen` rewrites it.
#pragma once
#ifdef __METAL_VERSION__
#include <metal_stdlib>
#else
#include <stdint.h>
#include "cpu_kernel.h"
#endif

#define MLA_PIECES_QUERIES 0  // read
#define MLA_PIECES_Q_PE 1  // read
#define MLA_PIECES_LATENT_CACHE 2  // read
#define MLA_PIECES_K_PE_CACHE 3  // read
#define MLA_PIECES_LENGTHS 4  // read
#define MLA_PIECES_TREE_MASK 5  // read?
#define MLA_PIECES_PARTIAL 6  // write
#define MLA_PIECES_PARAMS 7
#define MLA_PIECES_FAULT 8
#define MLA_PIECES_HAS_TREE_MASK 32u
#define MLA_PIECES_FAULT_LENGTH 1
#define MLA_PIECES_FAULT_NEW_ROWS 2
#define MLA_PIECES_SOFTMAX_SIZE 2
#ifdef __METAL_VERSION__
#define MLA_PIECES_BLOCK_KEYS 64
#define MLA_PIECES_TILE_ROWS 32
#define MLA_PIECES_SIMDGROUPS 8
#define MLA_PIECES_TILE_COLUMNS 512
#define MLA_PIECES_SCORE_STRIDE 68
#define MLA_PIECES_MAX_PIECES 64
#define MLA_PIECES_MIN_PIECE_KEYS 64
#define MLA_PIECES_MOST_PARTIAL_ROWS 4096
#else
#define MLA_PIECES_BLOCK_KEYS 128
#define MLA_PIECES_PANEL_ROWS 6
#define MLA_PIECES_PANEL_COLUMNS 64
#define MLA_PIECES_GROUP_ROWS 96
#define MLA_PIECES_TILE_KEYS 256
#define MLA_PIECES_TILE_ROWS 32
#define MLA_PIECES_TILE_DEPTH 32
#define MLA_PIECES_MAX_PIECES 16
#define MLA_PIECES_MIN_PIECE_KEYS 128
#define MLA_PIECES_MOST_PARTIAL_ROWS 1024
#endif

struct MlaPiecesParams {
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
#else
  uint32_t groupRows;
  uint32_t width;
  uint32_t scratch[8];  // byte offsets
#endif
};
#ifdef __METAL_VERSION__
static_assert(sizeof(MlaPiecesParams) == 72, "MlaPiecesParams must match the declaration of mla_pieces");
#else
static_assert(sizeof(MlaPiecesParams) == 96, "MlaPiecesParams must match the declaration of mla_pieces");
#endif
#ifdef __METAL_VERSION__
struct MlaPiecesScratch {
  threadgroup uint* length;
  threadgroup float* scores0;
  threadgroup float* scores1;
  threadgroup float* factors;
};
inline MlaPiecesScratch scratch_of(threadgroup uchar* memory, constant MlaPiecesParams& p) {
  return {
      (threadgroup uint*)(memory + p.scratch[0]),
      (threadgroup float*)(memory + p.scratch[1]),
      (threadgroup float*)(memory + p.scratch[2]),
      (threadgroup float*)(memory + p.scratch[3]),
  };
}
#else
struct MlaPiecesScratch {
  float* queries;
  float* sums;
  float* maxima;
  float* denominators;
  float* values;
  float* scores;
  uint16_t* weights;
  uint16_t* copied;
};
inline MlaPiecesScratch scratch_of(const MlxtsCpuLaunch& l, const MlaPiecesParams& p) {
  unsigned char* memory = static_cast<unsigned char*>(l.scratch);
  return {
      reinterpret_cast<float*>(memory + p.scratch[0]),
      reinterpret_cast<float*>(memory + p.scratch[1]),
      reinterpret_cast<float*>(memory + p.scratch[2]),
      reinterpret_cast<float*>(memory + p.scratch[3]),
      reinterpret_cast<float*>(memory + p.scratch[4]),
      reinterpret_cast<float*>(memory + p.scratch[5]),
      reinterpret_cast<uint16_t*>(memory + p.scratch[6]),
      reinterpret_cast<uint16_t*>(memory + p.scratch[7]),
  };
}
#endif
