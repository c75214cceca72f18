// Generated from the declaration of chunk_inverse; `npm run gen` rewrites it.
#pragma once
#ifdef __METAL_VERSION__
#include <metal_stdlib>
#else
#include <stdint.h>
#include "cpu_kernel.h"
#endif

#define CHUNK_INVERSE_A 0  // read
#define CHUNK_INVERSE_CU_SEQLENS 1  // read?
#define CHUNK_INVERSE_X 2  // write
#define CHUNK_INVERSE_PARAMS 3
#define CHUNK_INVERSE_FAULT 4
#define CHUNK_INVERSE_HAS_CU_SEQLENS 2u
#define CHUNK_INVERSE_FAULT_CU_SEQLENS 1
#ifdef __METAL_VERSION__
#define CHUNK_INVERSE_GAP 4
#endif

struct ChunkInverseParams {
  uint32_t sequences;
  uint32_t tokens;
  uint32_t heads;
  uint32_t chunkLength;
  uint32_t lastTokens;
  uint32_t present;  // a bit for each buffer
#ifdef __METAL_VERSION__
  uint32_t scratch[3];  // byte offsets
#else
  uint32_t scratch[1];  // byte offsets
#endif
};
#ifdef __METAL_VERSION__
static_assert(sizeof(ChunkInverseParams) == 36, "ChunkInverseParams must match the declaration of chunk_inverse");
#else
static_assert(sizeof(ChunkInverseParams) == 28, "ChunkInverseParams must match the declaration of chunk_inverse");
#endif
#ifdef __METAL_VERSION__
struct ChunkInverseScratch {
  threadgroup uint* place;
  threadgroup float* a;
  threadgroup float* diagonalInverses;
};
inline ChunkInverseScratch scratch_of(threadgroup uchar* memory, constant ChunkInverseParams& p) {
  return {
      (threadgroup uint*)(memory + p.scratch[0]),
      (threadgroup float*)(memory + p.scratch[1]),
      (threadgroup float*)(memory + p.scratch[2]),
  };
}
#else
struct ChunkInverseScratch {
  float* inverse;
};
inline ChunkInverseScratch scratch_of(const MlxtsCpuLaunch& l, const ChunkInverseParams& p) {
  unsigned char* memory = static_cast<unsigned char*>(l.scratch);
  return {
      reinterpret_cast<float*>(memory + p.scratch[0]),
  };
}
#endif
