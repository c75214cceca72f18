// Generated from the declaration of chunk_wu; `npm run gen` rewrites it.
#pragma once
#ifdef __METAL_VERSION__
#include <metal_stdlib>
#else
#include <stdint.h>
#include "cpu_kernel.h"
#endif

#define CHUNK_WU_K 0  // read
#define CHUNK_WU_V 1  // read
#define CHUNK_WU_BETA 2  // read
#define CHUNK_WU_SUM 3  // read
#define CHUNK_WU_SUM_LOW 4  // read?
#define CHUNK_WU_CU_SEQLENS 5  // read?
#define CHUNK_WU_X 6  // read
#define CHUNK_WU_W 7  // write
#define CHUNK_WU_U 8  // write
#define CHUNK_WU_PARAMS 9
#define CHUNK_WU_FAULT 10
#define CHUNK_WU_HAS_SUM_LOW 16u
#define CHUNK_WU_HAS_CU_SEQLENS 32u
#define CHUNK_WU_FAULT_CU_SEQLENS 1
#define CHUNK_WU_ROW_BYTES 144

struct ChunkWuParams {
  uint32_t sequences;
  uint32_t tokens;
  uint32_t keyHeads;
  uint32_t headsPerKey;
  uint32_t heads;
  uint32_t keyDim;
  uint32_t valueDim;
  uint32_t chunkLength;
  uint32_t lastTokens;
  uint32_t present;  // a bit for each buffer
  uint32_t scratch[1];  // byte offsets
};
static_assert(sizeof(ChunkWuParams) == 44, "ChunkWuParams must match the declaration of chunk_wu");
#ifdef __METAL_VERSION__
struct ChunkWuScratch {
  threadgroup uchar* memory;
};
inline ChunkWuScratch scratch_of(threadgroup uchar* memory, constant ChunkWuParams& p) {
  return {
      (threadgroup uchar*)(memory + p.scratch[0]),
  };
}
#else
struct ChunkWuScratch {
  uint8_t* memory;
};
inline ChunkWuScratch scratch_of(const MlxtsCpuLaunch& l, const ChunkWuParams& p) {
  unsigned char* memory = static_cast<unsigned char*>(l.scratch);
  return {
      reinterpret_cast<uint8_t*>(memory + p.scratch[0]),
  };
}
#endif
