// Generated from the declaration of chunk_cumsum; `npm run gen` rewrites it.
#pragma once
#ifdef __METAL_VERSION__
#include <metal_stdlib>
#else
#include <stdint.h>
#include "cpu_kernel.h"
#endif

#define CHUNK_CUMSUM_G 0  // read
#define CHUNK_CUMSUM_CU_SEQLENS 1  // read?
#define CHUNK_CUMSUM_MASK 2  // read?
#define CHUNK_CUMSUM_SUM 3  // write
#define CHUNK_CUMSUM_SUM_LOW 4  // write?
#define CHUNK_CUMSUM_PARAMS 5
#define CHUNK_CUMSUM_FAULT 6
#define CHUNK_CUMSUM_HAS_CU_SEQLENS 2u
#define CHUNK_CUMSUM_HAS_MASK 4u
#define CHUNK_CUMSUM_HAS_SUM_LOW 16u
#define CHUNK_CUMSUM_FAULT_CU_SEQLENS 1

struct ChunkCumsumParams {
  uint32_t sequences;
  uint32_t tokens;
  uint32_t heads;
  uint32_t channels;
  uint32_t chunkLength;
  uint32_t lastTokens;
  float gateFactor;
  uint32_t present;  // a bit for each buffer
  uint32_t scratch[1];  // byte offsets
};
static_assert(sizeof(ChunkCumsumParams) == 36, "ChunkCumsumParams must match the declaration of chunk_cumsum");
#ifdef __METAL_VERSION__
struct ChunkCumsumScratch {
  threadgroup uchar* memory;
};
inline ChunkCumsumScratch scratch_of(threadgroup uchar* memory, constant ChunkCumsumParams& p) {
  return {
      (threadgroup uchar*)(memory + p.scratch[0]),
  };
}
#else
struct ChunkCumsumScratch {
  uint8_t* memory;
};
inline ChunkCumsumScratch scratch_of(const MlxtsCpuLaunch& l, const ChunkCumsumParams& p) {
  unsigned char* memory = static_cast<unsigned char*>(l.scratch);
  return {
      reinterpret_cast<uint8_t*>(memory + p.scratch[0]),
  };
}
#endif
