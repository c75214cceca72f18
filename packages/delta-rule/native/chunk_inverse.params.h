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
#define CHUNK_INVERSE_PAD 4

struct ChunkInverseParams {
  uint32_t sequences;
  uint32_t tokens;
  uint32_t heads;
  uint32_t chunkLength;
  uint32_t lastTokens;
  uint32_t present;  // a bit for each buffer
  uint32_t scratch[1];  // byte offsets
};
static_assert(sizeof(ChunkInverseParams) == 28, "ChunkInverseParams must match the declaration of chunk_inverse");
#ifdef __METAL_VERSION__
struct ChunkInverseScratch {
  threadgroup uchar* memory;
};
inline ChunkInverseScratch scratch_of(threadgroup uchar* memory, constant ChunkInverseParams& p) {
  return {
      (threadgroup uchar*)(memory + p.scratch[0]),
  };
}
#else
struct ChunkInverseScratch {
  uint8_t* memory;
};
inline ChunkInverseScratch scratch_of(const MlxtsCpuLaunch& l, const ChunkInverseParams& p) {
  unsigned char* memory = static_cast<unsigned char*>(l.scratch);
  return {
      reinterpret_cast<uint8_t*>(memory + p.scratch[0]),
  };
}
#endif
