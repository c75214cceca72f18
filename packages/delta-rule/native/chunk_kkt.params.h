// Generated from the declaration of chunk_kkt; `npm run gen` rewrites it.
#pragma once
#ifdef __METAL_VERSION__
#include <metal_stdlib>
#else
#include <stdint.h>
#include "cpu_kernel.h"
#endif

#define CHUNK_KKT_K 0  // read
#define CHUNK_KKT_BETA 1  // read
#define CHUNK_KKT_SUM 2  // read
#define CHUNK_KKT_SUM_LOW 3  // read?
#define CHUNK_KKT_CU_SEQLENS 4  // read?
#define CHUNK_KKT_A 5  // write
#define CHUNK_KKT_PARAMS 6
#define CHUNK_KKT_FAULT 7
#define CHUNK_KKT_HAS_SUM_LOW 8u
#define CHUNK_KKT_HAS_CU_SEQLENS 16u
#define CHUNK_KKT_FAULT_CU_SEQLENS 1
#define CHUNK_KKT_ROW_BYTES 144
#define CHUNK_KKT_CHANNEL_COLUMNS 16

struct ChunkKktParams {
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
static_assert(sizeof(ChunkKktParams) == 44, "ChunkKktParams must match the declaration of chunk_kkt");
#ifdef __METAL_VERSION__
struct ChunkKktScratch {
  threadgroup uchar* memory;
};
inline ChunkKktScratch scratch_of(threadgroup uchar* memory, constant ChunkKktParams& p) {
  return {
      (threadgroup uchar*)(memory + p.scratch[0]),
  };
}
#else
struct ChunkKktScratch {
  uint8_t* memory;
};
inline ChunkKktScratch scratch_of(const MlxtsCpuLaunch& l, const ChunkKktParams& p) {
  unsigned char* memory = static_cast<unsigned char*>(l.scratch);
  return {
      reinterpret_cast<uint8_t*>(memory + p.scratch[0]),
  };
}
#endif
