// Generated from the declaration of sdpa_pieces; `npm run gen` rewrites it.
#pragma once
#ifdef __METAL_VERSION__
#include <metal_stdlib>
#else
#include <stdint.h>
#include "cpu_kernel.h"
#endif

#define SDPA_PIECES_Q 0  // read
#define SDPA_PIECES_K_CACHE 1  // read
#define SDPA_PIECES_V_CACHE 2  // read
#define SDPA_PIECES_LENGTHS 3  // read
#define SDPA_PIECES_PARTIAL 4  // write
#define SDPA_PIECES_PARAMS 5
#define SDPA_PIECES_FAULT 6
#define SDPA_PIECES_FAULT_LENGTH 1
#define SDPA_PIECES_FAULT_NEW_ROWS 2
#ifdef __METAL_VERSION__
#define SDPA_PIECES_SIMDGROUPS 8
#define SDPA_PIECES_TILE_COLUMNS 256
#define SDPA_PIECES_MAX_PIECES 64
#ifdef MLXTS_CUDA
#define SDPA_PIECES_TILE_ROWS 8
#define SDPA_PIECES_SCORE_STRIDE 36
#define SDPA_PIECES_BLOCK_KEYS 32
#define SDPA_PIECES_MIN_PIECE_KEYS 32
#define SDPA_PIECES_SOFTMAX_SIZE 4
#define SDPA_PIECES_LEAST_PIECES 16
#define SDPA_PIECES_PRODUCT_PADDING 8
#else
#define SDPA_PIECES_TILE_ROWS 32
#define SDPA_PIECES_SCORE_STRIDE 68
#define SDPA_PIECES_PRODUCT_PADDING 0
#define SDPA_PIECES_BLOCK_KEYS 64
#define SDPA_PIECES_MIN_PIECE_KEYS 64
#define SDPA_PIECES_SOFTMAX_SIZE 2
#define SDPA_PIECES_LEAST_PIECES 64
#endif
#else
#define SDPA_PIECES_BLOCK_KEYS 64
#define SDPA_PIECES_LEAST_PIECES 16
#define SDPA_PIECES_MAX_PIECES 16
#define SDPA_PIECES_MIN_PIECE_KEYS 128
#define SDPA_PIECES_SOFTMAX_SIZE 2
#endif

struct SdpaPiecesParams {
  uint32_t batch;
  uint32_t tokens;
  uint32_t heads;
  uint32_t kvHeads;
  uint32_t dim;
  uint32_t capacity;
  float scale;
  uint32_t causal;
  uint32_t mostPieces;
#ifdef __METAL_VERSION__
  uint32_t scratch[5];  // byte offsets
#else
  uint32_t width;
  uint32_t scratch[6];  // byte offsets
#endif
};
#ifdef __METAL_VERSION__
static_assert(sizeof(SdpaPiecesParams) == 56, "SdpaPiecesParams must match the declaration of sdpa_pieces");
#else
static_assert(sizeof(SdpaPiecesParams) == 64, "SdpaPiecesParams must match the declaration of sdpa_pieces");
#endif
#ifdef __METAL_VERSION__
struct SdpaPiecesScratch {
  threadgroup uint* length;
  threadgroup float* scores0;
  threadgroup float* scores1;
  threadgroup float* factors;
  threadgroup float* sums;
};
inline SdpaPiecesScratch scratch_of(threadgroup uchar* memory, constant SdpaPiecesParams& p) {
  return {
      (threadgroup uint*)(memory + p.scratch[0]),
      (threadgroup float*)(memory + p.scratch[1]),
      (threadgroup float*)(memory + p.scratch[2]),
      (threadgroup float*)(memory + p.scratch[3]),
      (threadgroup float*)(memory + p.scratch[4]),
  };
}
#else
struct SdpaPiecesScratch {
  float* queries;
  float* sums;
  float* maxima;
  float* denominators;
  float* scores;
  uint16_t* weights;
};
inline SdpaPiecesScratch scratch_of(const MlxtsCpuLaunch& l, const SdpaPiecesParams& p) {
  unsigned char* memory = static_cast<unsigned char*>(l.scratch);
  return {
      reinterpret_cast<float*>(memory + p.scratch[0]),
      reinterpret_cast<float*>(memory + p.scratch[1]),
      reinterpret_cast<float*>(memory + p.scratch[2]),
      reinterpret_cast<float*>(memory + p.scratch[3]),
      reinterpret_cast<float*>(memory + p.scratch[4]),
      reinterpret_cast<uint16_t*>(memory + p.scratch[5]),
  };
}
#endif
