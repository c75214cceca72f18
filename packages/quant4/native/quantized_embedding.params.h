// Generated from the declaration of quantized_embedding; `npm run gen` rewrites it.
#pragma once
#ifdef __METAL_VERSION__
#include <metal_stdlib>
#else
#include <stdint.h>
#include "cpu_kernel.h"
#endif

#define QUANTIZED_EMBEDDING_IDS 0  // read
#define QUANTIZED_EMBEDDING_WEIGHT 1  // read
#define QUANTIZED_EMBEDDING_SCALES 2  // read
#define QUANTIZED_EMBEDDING_BIASES 3  // read
#define QUANTIZED_EMBEDDING_OUT 4  // write
#define QUANTIZED_EMBEDDING_PARAMS 5
#define QUANTIZED_EMBEDDING_FAULT 6
#define QUANTIZED_EMBEDDING_FAULT_ID 1

struct QuantizedEmbeddingParams {
  uint32_t rows;
  uint32_t cols;
  uint32_t groupSize;
  uint32_t signedIds;
  uint32_t scratch[1];  // byte offsets
};
static_assert(sizeof(QuantizedEmbeddingParams) == 20, "QuantizedEmbeddingParams must match the declaration of quantized_embedding");
#ifdef __METAL_VERSION__
struct QuantizedEmbeddingScratch {
  threadgroup uchar* memory;
};
inline QuantizedEmbeddingScratch scratch_of(threadgroup uchar* memory, constant QuantizedEmbeddingParams& p) {
  return {
      (threadgroup uchar*)(memory + p.scratch[0]),
  };
}
#else
struct QuantizedEmbeddingScratch {
  uint8_t* memory;
};
inline QuantizedEmbeddingScratch scratch_of(const MlxtsCpuLaunch& l, const QuantizedEmbeddingParams& p) {
  unsigned char* memory = static_cast<unsigned char*>(l.scratch);
  return {
      reinterpret_cast<uint8_t*>(memory + p.scratch[0]),
  };
}
#endif
