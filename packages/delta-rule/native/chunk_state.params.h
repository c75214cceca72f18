// Generated from the declaration of chunk_state; `npm run gen` rewrites it.
#pragma once
#ifdef __METAL_VERSION__
#include <metal_stdlib>
#else
#include <stdint.h>
#include "cpu_kernel.h"
#endif

#define CHUNK_STATE_K 0  // read
#define CHUNK_STATE_W 1  // read
#define CHUNK_STATE_U 2  // read
#define CHUNK_STATE_SUM 3  // read
#define CHUNK_STATE_SUM_LOW 4  // read?
#define CHUNK_STATE_CU_SEQLENS 5  // read?
#define CHUNK_STATE_INITIAL_STATE 6  // read?
#define CHUNK_STATE_H 7  // write
#define CHUNK_STATE_V_NEW 8  // write
#define CHUNK_STATE_FINAL_STATE 9  // write?
#define CHUNK_STATE_SNAPSHOTS 10  // write?
#define CHUNK_STATE_PARAMS 11
#define CHUNK_STATE_FAULT 12
#define CHUNK_STATE_HAS_SUM_LOW 16u
#define CHUNK_STATE_HAS_CU_SEQLENS 32u
#define CHUNK_STATE_HAS_INITIAL_STATE 64u
#define CHUNK_STATE_HAS_FINAL_STATE 512u
#define CHUNK_STATE_HAS_SNAPSHOTS 1024u
#define CHUNK_STATE_FAULT_CU_SEQLENS 1
#define CHUNK_STATE_ROWS 32
#define CHUNK_STATE_TILE_BYTES 8192
#define CHUNK_STATE_BUFFER_BYTES 9216

struct ChunkStateParams {
  uint32_t sequences;
  uint32_t tokens;
  uint32_t keyHeads;
  uint32_t headsPerKey;
  uint32_t heads;
  uint32_t keyDim;
  uint32_t valueDim;
  uint32_t chunkLength;
  uint32_t lastTokens;
  uint32_t rowStride;
  uint32_t columnStride;
  uint32_t snapshotEvery;
  uint32_t present;  // a bit for each buffer
  uint32_t scratch[1];  // byte offsets
};
static_assert(sizeof(ChunkStateParams) == 56, "ChunkStateParams must match the declaration of chunk_state");
#ifdef __METAL_VERSION__
struct ChunkStateScratch {
  threadgroup uchar* memory;
};
inline ChunkStateScratch scratch_of(threadgroup uchar* memory, constant ChunkStateParams& p) {
  return {
      (threadgroup uchar*)(memory + p.scratch[0]),
  };
}
#else
struct ChunkStateScratch {
  uint8_t* memory;
};
inline ChunkStateScratch scratch_of(const MlxtsCpuLaunch& l, const ChunkStateParams& p) {
  unsigned char* memory = static_cast<unsigned char*>(l.scratch);
  return {
      reinterpret_cast<uint8_t*>(memory + p.scratch[0]),
  };
}
#endif
