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
#define CHUNK_STATE_CUMULATIVE_GATE 3  // read
#define CHUNK_STATE_CUMULATIVE_GATE_LOW 4  // read?
#define CHUNK_STATE_CU_SEQLENS 5  // read?
#define CHUNK_STATE_INITIAL_STATE 6  // read?
#define CHUNK_STATE_H 7  // write
#define CHUNK_STATE_V_NEW 8  // write
#define CHUNK_STATE_FINAL_STATE 9  // write?
#define CHUNK_STATE_SNAPSHOTS 10  // write?
#define CHUNK_STATE_PARAMS 11
#define CHUNK_STATE_FAULT 12
#define CHUNK_STATE_HAS_CUMULATIVE_GATE_LOW 16u
#define CHUNK_STATE_HAS_CU_SEQLENS 32u
#define CHUNK_STATE_HAS_INITIAL_STATE 64u
#define CHUNK_STATE_HAS_FINAL_STATE 512u
#define CHUNK_STATE_HAS_SNAPSHOTS 1024u
#define CHUNK_STATE_FAULT_CU_SEQLENS 1
#ifdef __METAL_VERSION__
#define CHUNK_STATE_ROWS 16
#define CHUNK_STATE_SIMDGROUPS 4
#define CHUNK_STATE_THREADS 128
#define CHUNK_STATE_TILE_BYTES 2048
#define CHUNK_STATE_MOST_TOKENS 64
#define CHUNK_STATE_SUM_STRIDE 24
#else
#define CHUNK_STATE_ROWS 64
#endif

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
#ifdef __METAL_VERSION__
  uint32_t teams;
  uint32_t slots;
  uint32_t scratch[4];  // byte offsets
#else
  uint32_t scratch[9];  // byte offsets
#endif
};
#ifdef __METAL_VERSION__
static_assert(sizeof(ChunkStateParams) == 76, "ChunkStateParams must match the declaration of chunk_state");
#else
static_assert(sizeof(ChunkStateParams) == 88, "ChunkStateParams must match the declaration of chunk_state");
#endif
#ifdef __METAL_VERSION__
struct ChunkStateScratch {
  threadgroup uchar* tiles;
  threadgroup uint* place;
  threadgroup float* state;
  threadgroup uchar* values;
};
inline ChunkStateScratch scratch_of(threadgroup uchar* memory, constant ChunkStateParams& p) {
  return {
      (threadgroup uchar*)(memory + p.scratch[0]),
      (threadgroup uint*)(memory + p.scratch[1]),
      (threadgroup float*)(memory + p.scratch[2]),
      (threadgroup uchar*)(memory + p.scratch[3]),
  };
}
#else
struct ChunkStateScratch {
  float* state;
  float* transposedState;
  float* gated;
  float* w;
  float* keys;
  float* decaysToEnd;
  float* cumulativeGateHigh;
  float* cumulativeGateLow;
  float* keyDecays;
};
inline ChunkStateScratch scratch_of(const MlxtsCpuLaunch& l, const ChunkStateParams& p) {
  unsigned char* memory = static_cast<unsigned char*>(l.scratch);
  return {
      reinterpret_cast<float*>(memory + p.scratch[0]),
      reinterpret_cast<float*>(memory + p.scratch[1]),
      reinterpret_cast<float*>(memory + p.scratch[2]),
      reinterpret_cast<float*>(memory + p.scratch[3]),
      reinterpret_cast<float*>(memory + p.scratch[4]),
      reinterpret_cast<float*>(memory + p.scratch[5]),
      reinterpret_cast<float*>(memory + p.scratch[6]),
      reinterpret_cast<float*>(memory + p.scratch[7]),
      reinterpret_cast<float*>(memory + p.scratch[8]),
  };
}
#endif
