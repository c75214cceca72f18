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
#define CHUNK_OUTPUT_CUMULATIVE_GATE 4  // read
#define CHUNK_OUTPUT_CUMULATIVE_GATE_LOW 5  // read?
#define CHUNK_OUTPUT_CU_SEQLENS 6  // read?
#define CHUNK_OUTPUT_MASK 7  // read?
#define CHUNK_OUTPUT_O 8  // write
#define CHUNK_OUTPUT_PARAMS 9
#define CHUNK_OUTPUT_FAULT 10
#define CHUNK_OUTPUT_HAS_CUMULATIVE_GATE_LOW 32u
#define CHUNK_OUTPUT_HAS_CU_SEQLENS 64u
#define CHUNK_OUTPUT_HAS_MASK 128u
#define CHUNK_OUTPUT_FAULT_CU_SEQLENS 1
#ifdef __METAL_VERSION__
#define CHUNK_OUTPUT_PANEL_BYTES 64
#ifdef MLXTS_CUDA
#define CHUNK_OUTPUT_NORMALIZES 1
#else
#define CHUNK_OUTPUT_NORMALIZES 0
#endif
#else
#define CHUNK_OUTPUT_PANEL_VALUES 64
#define CHUNK_OUTPUT_NORMALIZES 0
#endif

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
#ifdef __METAL_VERSION__
  uint32_t wide;
  uint32_t qkNorm;
  float eps;
  float normFloor;
  uint32_t scratch[5];  // byte offsets
#else
  uint32_t keyStride;
  uint32_t scratch[9];  // byte offsets
#endif
};
#ifdef __METAL_VERSION__
static_assert(sizeof(ChunkOutputParams) == 80, "ChunkOutputParams must match the declaration of chunk_output");
#else
static_assert(sizeof(ChunkOutputParams) == 84, "ChunkOutputParams must match the declaration of chunk_output");
#endif
#ifdef __METAL_VERSION__
struct ChunkOutputScratch {
  threadgroup uchar* tiles;
  threadgroup uint* place;
  threadgroup float* cumulativeGateHigh;
  threadgroup float* cumulativeGateLow;
  threadgroup float* decayed;
};
inline ChunkOutputScratch scratch_of(threadgroup uchar* memory, constant ChunkOutputParams& p) {
  return {
      (threadgroup uchar*)(memory + p.scratch[0]),
      (threadgroup uint*)(memory + p.scratch[1]),
      (threadgroup float*)(memory + p.scratch[2]),
      (threadgroup float*)(memory + p.scratch[3]),
      (threadgroup float*)(memory + p.scratch[4]),
  };
}
#else
struct ChunkOutputScratch {
  float* queries;
  float* keysThenStates;
  float* transposed;
  float* scores;
  float* values;
  float* decays;
  float* cumulativeGateHigh;
  float* cumulativeGateLow;
  float* steps;
};
inline ChunkOutputScratch scratch_of(const MlxtsCpuLaunch& l, const ChunkOutputParams& p) {
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
