// Generated from the declaration of embedding; `npm run gen` rewrites it.
#pragma once
#ifdef __METAL_VERSION__
#include <metal_stdlib>
#else
#include <stdint.h>
#include "cpu_kernel.h"
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
  uint32_t scratch[1];  // byte offsets
};
static_assert(sizeof(EmbeddingParams) == 16, "EmbeddingParams must match the declaration of embedding");
#ifdef __METAL_VERSION__
struct EmbeddingScratch {
  threadgroup uchar* memory;
};
inline EmbeddingScratch scratch_of(threadgroup uchar* memory, constant EmbeddingParams& p) {
  return {
      (threadgroup uchar*)(memory + p.scratch[0]),
  };
}
#else
struct EmbeddingScratch {
  uint8_t* memory;
};
inline EmbeddingScratch scratch_of(const MlxtsCpuLaunch& l, const EmbeddingParams& p) {
  unsigned char* memory = static_cast<unsigned char*>(l.scratch);
  return {
      reinterpret_cast<uint8_t*>(memory + p.scratch[0]),
  };
}
#endif
