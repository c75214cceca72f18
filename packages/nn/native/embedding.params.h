// Generated from the declaration of embedding; `npm run gen` rewrites it.
#pragma once
#ifdef __METAL_VERSION__
#include <metal_stdlib>
#else
#include <stdint.h>
#endif

#define EMBEDDING_IDS 0  // read
#define EMBEDDING_WEIGHT 1  // read
#define EMBEDDING_OUT 2  // write
#define EMBEDDING_PARAMS 3
#define EMBEDDING_FAULT 4
#define EMBEDDING_FAULT_ID 1

struct EmbeddingParams {
  uint32_t vocabulary;
  uint32_t dim;
  uint32_t signedIds;
};
static_assert(sizeof(EmbeddingParams) == 12, "EmbeddingParams must match the declaration of embedding");
