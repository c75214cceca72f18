// Generated from the declaration of sdpa; `npm run gen` rewrites it.
#pragma once
#ifdef __METAL_VERSION__
#include <metal_stdlib>
#else
#include <stdint.h>
#include "cpu_kernel.h"
#endif

#define SDPA_Q 0  // read
#define SDPA_K_CACHE 1  // read
#define SDPA_V_CACHE 2  // read
#define SDPA_LENGTHS 3  // read
#define SDPA_OUT 4  // write
#define SDPA_PARAMS 5
#define SDPA_FAULT 6
#define SDPA_FAULT_LENGTH 1
#define SDPA_FAULT_NEW_ROWS 2
#ifdef __METAL_VERSION__
#define SDPA_THREADS 256
#define SDPA_TILE_ROWS 128
#define SDPA_TILE_COLUMNS 128
#define SDPA_TILE_ROW_BYTES 256
#ifdef MLXTS_CUDA
#define SDPA_TILE_KEYS 64
#define SDPA_PAIR_THREADS 128
#define SDPA_PAIR_KEYS 32
#define SDPA_PAIR_TILES 4
#define SDPA_FULL_KEYS 64
#define SDPA_WARPGROUP_THREADS 384
#else
#define SDPA_TILE_KEYS 32
#define SDPA_PAIR_THREADS 0
#define SDPA_PAIR_KEYS 0
#define SDPA_PAIR_TILES 0
#define SDPA_FULL_KEYS 0
#define SDPA_WARPGROUP_THREADS 0
#endif
#else
#define SDPA_PANEL_ROWS 6
#define SDPA_PANEL_COLUMNS 64
#define SDPA_TILE_KEYS 256
#define SDPA_TILE_QUERIES 32
#endif

struct SdpaParams {
  uint32_t batch;
  uint32_t tokens;
  uint32_t heads;
  uint32_t kvHeads;
  uint32_t dim;
  uint32_t capacity;
  float scale;
  uint32_t causal;
#ifdef __METAL_VERSION__
  uint32_t scratch[3];  // byte offsets
#else
  uint32_t groupRows;
  uint32_t width;
  uint32_t tiles;
  uint32_t scratch[8];  // byte offsets
#endif
};
#ifdef __METAL_VERSION__
static_assert(sizeof(SdpaParams) == 44, "SdpaParams must match the declaration of sdpa");
#else
static_assert(sizeof(SdpaParams) == 76, "SdpaParams must match the declaration of sdpa");
#endif
#ifdef __METAL_VERSION__
struct SdpaScratch {
  threadgroup uchar* tiles;
  threadgroup uchar* queries;
  threadgroup uint* length;
};
inline SdpaScratch scratch_of(threadgroup uchar* memory, constant SdpaParams& p) {
  return {
      (threadgroup uchar*)(memory + p.scratch[0]),
      (threadgroup uchar*)(memory + p.scratch[1]),
      (threadgroup uint*)(memory + p.scratch[2]),
  };
}
#else
struct SdpaScratch {
  float* queries;
  float* sums;
  float* maxima;
  float* denominators;
  float* keys;
  float* values;
  float* scores;
  uint16_t* weights;
};
inline SdpaScratch scratch_of(const MlxtsCpuLaunch& l, const SdpaParams& p) {
  unsigned char* memory = static_cast<unsigned char*>(l.scratch);
  return {
      reinterpret_cast<float*>(memory + p.scratch[0]),
      reinterpret_cast<float*>(memory + p.scratch[1]),
      reinterpret_cast<float*>(memory + p.scratch[2]),
      reinterpret_cast<float*>(memory + p.scratch[3]),
      reinterpret_cast<float*>(memory + p.scratch[4]),
      reinterpret_cast<float*>(memory + p.scratch[5]),
      reinterpret_cast<float*>(memory + p.scratch[6]),
      reinterpret_cast<uint16_t*>(memory + p.scratch[7]),
  };
}
#endif
