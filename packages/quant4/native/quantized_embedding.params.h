// Generated from the declaration of quantized_embedding; `npm run gen` rewrites it.
#pragma once
#ifdef __METAL_VERSION__
#include <metal_stdlib>
#else
#include <stdint.h>
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
};
static_assert(sizeof(QuantizedEmbeddingParams) == 16, "QuantizedEmbeddingParams must match the declaration of quantized_embedding");
