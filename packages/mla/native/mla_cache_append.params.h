// Generated from the declaration of mla_cache_append; `npm run gen` rewrites it.
#pragma once
#ifdef __METAL_VERSION__
#include <metal_stdlib>
#else
#include <stdint.h>
#endif

#define MLA_CACHE_APPEND_LATENT 0  // read
#define MLA_CACHE_APPEND_K_PE 1  // read
#define MLA_CACHE_APPEND_START 2  // read
#define MLA_CACHE_APPEND_LATENT_CACHE 3  // readWrite
#define MLA_CACHE_APPEND_K_PE_CACHE 4  // readWrite
#define MLA_CACHE_APPEND_PARAMS 5
#define MLA_CACHE_APPEND_FAULT 6
#define MLA_CACHE_APPEND_FAULT_START 1

struct MlaCacheAppendParams {
  uint32_t batch;
  uint32_t tokens;
  uint32_t latentDim;
  uint32_t rope;
  uint32_t capacity;
  uint32_t latentStride;
  uint32_t ropeStride;
  uint32_t sequenceStride;
  uint32_t counted;
};
static_assert(sizeof(MlaCacheAppendParams) == 36, "MlaCacheAppendParams must match the declaration of mla_cache_append");
