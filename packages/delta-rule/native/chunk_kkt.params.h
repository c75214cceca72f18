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
#define CHUNK_KKT_CUMULATIVE_GATE 2  // read
#define CHUNK_KKT_CUMULATIVE_GATE_LOW 3  // read?
#define CHUNK_KKT_CU_SEQLENS 4  // read?
#define CHUNK_KKT_A 5  // write
#define CHUNK_KKT_PARAMS 6
#define CHUNK_KKT_FAULT 7
#define CHUNK_KKT_HAS_CUMULATIVE_GATE_LOW 8u
#define CHUNK_KKT_HAS_CU_SEQLENS 16u
#define CHUNK_KKT_FAULT_CU_SEQLENS 1
#ifdef __METAL_VERSION__
#define CHUNK_KKT_PANEL_BYTES 128
#define CHUNK_KKT_CHANNEL_COLUMNS 16
#endif

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
#ifdef __METAL_VERSION__
  uint32_t scratch[5];  // byte offsets
#else
  uint32_t keyStride;
  uint32_t scratch[7];  // byte offsets
#endif
};
#ifdef __METAL_VERSION__
static_assert(sizeof(ChunkKktParams) == 60, "ChunkKktParams must match the declaration of chunk_kkt");
#else
static_assert(sizeof(ChunkKktParams) == 72, "ChunkKktParams must match the declaration of chunk_kkt");
#endif
#ifdef __METAL_VERSION__
struct ChunkKktScratch {
  threadgroup uint* place;
  threadgroup uchar* keys;
  threadgroup float* cumulativeGateHigh;
  threadgroup float* cumulativeGateLow;
  threadgroup float* decayed;
};
inline ChunkKktScratch scratch_of(threadgroup uchar* memory, constant ChunkKktParams& p) {
  return {
      (threadgroup uint*)(memory + p.scratch[0]),
      (threadgroup uchar*)(memory + p.scratch[1]),
      (threadgroup float*)(memory + p.scratch[2]),
      (threadgroup float*)(memory + p.scratch[3]),
      (threadgroup float*)(memory + p.scratch[4]),
  };
}
#else
struct ChunkKktScratch {
  float* keys;
  float* transposedKeys;
  float* betas;
  float* cumulativeGateHigh;
  float* cumulativeGateLow;
  float* weightedKeys;
  float* steps;
};
inline ChunkKktScratch scratch_of(const MlxtsCpuLaunch& l, const ChunkKktParams& p) {
  unsigned char* memory = static_cast<unsigned char*>(l.scratch);
  return {
      reinterpret_cast<float*>(memory + p.scratch[0]),
      reinterpret_cast<float*>(memory + p.scratch[1]),
      reinterpret_cast<float*>(memory + p.scratch[2]),
      reinterpret_cast<float*>(memory + p.scratch[3]),
      reinterpret_cast<float*>(memory + p.scratch[4]),
      reinterpret_cast<float*>(memory + p.scratch[5]),
      reinterpret_cast<float*>(memory + p.scratch[6]),
  };
}
#endif
