// Generated from the declaration of chunk_output; `npm run gen` rewrites it.
#pragma once
#ifdef __METAL_VERSION__
#include <metal_stdlib>
#else
#include <stdint.h>
#include "cpu_kernel.h"
#endif

#define CHUNK_OUTPUT_Q 0  // read
#define CHUNK_OUTPUT_K 1  // read
#define CHUNK_OUTPUT_V_NEW 2  // read
#define CHUNK_OUTPUT_H 3  // read
#define CHUNK_OUTPUT_SUM 4  // read
#define CHUNK_OUTPUT_SUM_LOW 5  // read?
#define CHUNK_OUTPUT_CU_SEQLENS 6  // read?
#define CHUNK_OUTPUT_MASK 7  // read?
#define CHUNK_OUTPUT_O 8  // write
#define CHUNK_OUTPUT_PARAMS 9
#define CHUNK_OUTPUT_FAULT 10
#define CHUNK_OUTPUT_HAS_SUM_LOW 32u
#define CHUNK_OUTPUT_HAS_CU_SEQLENS 64u
#define CHUNK_OUTPUT_HAS_MASK 128u
#define CHUNK_OUTPUT_FAULT_CU_SEQLENS 1
#define CHUNK_OUTPUT_ROW_BYTES 144
#define CHUNK_OUTPUT_CHANNEL_COLUMNS 16
#define CHUNK_OUTPUT_VALUES 64

struct ChunkOutputParams {
  uint32_t sequences;
  uint32_t tokens;
  uint32_t keyHeads;
  uint32_t headsPerKey;
  uint32_t heads;
  uint32_t keyDim;
  uint32_t valueDim;
  uint32_t chunkLength;
  uint32_t lastTokens;
  float scale;
  uint32_t present;  // a bit for each buffer
  uint32_t scratch[1];  // byte offsets
};
static_assert(sizeof(ChunkOutputParams) == 48, "ChunkOutputParams must match the declaration of chunk_output");
#ifdef __METAL_VERSION__
struct ChunkOutputScratch {
  threadgroup uchar* memory;
};
inline ChunkOutputScratch scratch_of(threadgroup uchar* memory, constant ChunkOutputParams& p) {
  return {
      (threadgroup uchar*)(memory + p.scratch[0]),
  };
}
#else
struct ChunkOutputScratch {
  uint8_t* memory;
};
inline ChunkOutputScratch scratch_of(const MlxtsCpuLaunch& l, const ChunkOutputParams& p) {
  unsigned char* memory = static_cast<unsigned char*>(l.scratch);
  return {
      reinterpret_cast<uint8_t*>(memory + p.scratch[0]),
  };
}
#endif
