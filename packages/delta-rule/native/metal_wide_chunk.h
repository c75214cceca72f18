// Where a GPU has another order of work for whole chunks, these do it and return true. In a CUDA translation
// cuda_wide_chunk.h takes this header's place.
#pragma once
#include "wide_chunk_metal.h"

namespace mlxts {

template <typename T>
METAL_FUNC bool wide_output(OutputTensors<T>, threadgroup uchar*, CumulativeGates, Strip, uint, uint) {
  return false;
}

}  // namespace mlxts
