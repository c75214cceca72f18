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
#define SDPA_PIECES_MAX_PIECES 64
#define SDPA_PIECES_MIN_PIECE_KEYS 64

struct SdpaPiecesParams {
  uint32_t batch;
  uint32_t tokens;
  uint32_t heads;
  uint32_t kvHeads;
  uint32_t dim;
  uint32_t capacity;
  float scale;
  uint32_t causal;
  uint32_t scratch[1];  // byte offsets
};
static_assert(sizeof(SdpaPiecesParams) == 36, "SdpaPiecesParams must match the declaration of sdpa_pieces");
#ifdef __METAL_VERSION__
struct SdpaPiecesScratch {
  threadgroup uchar* memory;
};
inline SdpaPiecesScratch scratch_of(threadgroup uchar* memory, constant SdpaPiecesParams& p) {
  return {
      (threadgroup uchar*)(memory + p.scratch[0]),
  };
}
#else
struct SdpaPiecesScratch {
  uint8_t* memory;
};
inline SdpaPiecesScratch scratch_of(const MlxtsCpuLaunch& l, const SdpaPiecesParams& p) {
  unsigned char* memory = static_cast<unsigned char*>(l.scratch);
  return {
      reinterpret_cast<uint8_t*>(memory + p.scratch[0]),
  };
}
#endif
