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
#define SDPA_TILE_ROWS 32
#define SDPA_SIMDGROUPS 8
#define SDPA_TILE_KEYS 64
#define SDPA_TILE_COLUMNS 256
#define SDPA_SCORE_STRIDE 68

struct SdpaParams {
  uint32_t batch;
  uint32_t tokens;
  uint32_t heads;
  uint32_t kvHeads;
  uint32_t dim;
  uint32_t capacity;
  float scale;
  uint32_t causal;
  uint32_t groupRows;
  uint32_t scratch[1];  // byte offsets
};
static_assert(sizeof(SdpaParams) == 40, "SdpaParams must match the declaration of sdpa");
#ifdef __METAL_VERSION__
struct SdpaScratch {
  threadgroup uchar* memory;
};
inline SdpaScratch scratch_of(threadgroup uchar* memory, constant SdpaParams& p) {
  return {
      (threadgroup uchar*)(memory + p.scratch[0]),
  };
}
#else
struct SdpaScratch {
  uint8_t* memory;
};
inline SdpaScratch scratch_of(const MlxtsCpuLaunch& l, const SdpaParams& p) {
  unsigned char* memory = static_cast<unsigned char*>(l.scratch);
  return {
      reinterpret_cast<uint8_t*>(memory + p.scratch[0]),
  };
}
#endif
