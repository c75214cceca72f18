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
#define CHUNK_WU_CUMULATIVE_GATE 3  // read
#define CHUNK_WU_CUMULATIVE_GATE_LOW 4  // read?
#define CHUNK_WU_CU_SEQLENS 5  // read?
#define CHUNK_WU_X 6  // read?
#define CHUNK_WU_W 7  // write
#define CHUNK_WU_U 8  // write
#define CHUNK_WU_PARAMS 9
#define CHUNK_WU_FAULT 10
#define CHUNK_WU_HAS_CUMULATIVE_GATE_LOW 16u
#define CHUNK_WU_HAS_CU_SEQLENS 32u
#define CHUNK_WU_HAS_X 64u
#define CHUNK_WU_FAULT_CU_SEQLENS 1
#ifdef __METAL_VERSION__
#define CHUNK_WU_PANEL_COLUMNS 32
#ifdef MLXTS_CUDA
#define CHUNK_WU_MAKES_X 1
#else
#define CHUNK_WU_MAKES_X 0
#endif
#else
#define CHUNK_WU_PANEL_COLUMNS 64
#define CHUNK_WU_MAKES_X 0
#endif

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
#ifdef __METAL_VERSION__
  uint32_t scratch[3];  // byte offsets
#else
  uint32_t scratch[4];  // byte offsets
#endif
};
#ifdef __METAL_VERSION__
static_assert(sizeof(ChunkWuParams) == 52, "ChunkWuParams must match the declaration of chunk_wu");
#else
static_assert(sizeof(ChunkWuParams) == 56, "ChunkWuParams must match the declaration of chunk_wu");
#endif
#ifdef __METAL_VERSION__
struct ChunkWuScratch {
  threadgroup float* tiles;
  threadgroup uint* place;
  threadgroup float* factors;
};
inline ChunkWuScratch scratch_of(threadgroup uchar* memory, constant ChunkWuParams& p) {
  return {
      (threadgroup float*)(memory + p.scratch[0]),
      (threadgroup uint*)(memory + p.scratch[1]),
      (threadgroup float*)(memory + p.scratch[2]),
  };
}
#else
struct ChunkWuScratch {
  float* panel;
  float* factors;
  float* cumulativeGateHigh;
  float* cumulativeGateLow;
};
inline ChunkWuScratch scratch_of(const MlxtsCpuLaunch& l, const ChunkWuParams& p) {
  unsigned char* memory = static_cast<unsigned char*>(l.scratch);
  return {
      reinterpret_cast<float*>(memory + p.scratch[0]),
      reinterpret_cast<float*>(memory + p.scratch[1]),
      reinterpret_cast<float*>(memory + p.scratch[2]),
      reinterpret_cast<float*>(memory + p.scratch[3]),
  };
}
#endif
