// Generated from the declaration of sdpa; `npm run gen` rewrites it.
#pragma once
#ifdef __METAL_VERSION__
#include <metal_stdlib>
#else
#include <stdint.h>
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
};
static_assert(sizeof(SdpaParams) == 36, "SdpaParams must match the declaration of sdpa");
