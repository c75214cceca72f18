// Columns of a row that are copied.
#pragma once
#include "metal_kernel.h"

namespace mlxts {

// Copies `size` elements, kPerThread to a thread; neighboring lanes have neighboring elements. A thread asks for all of
// its elements before it stores the first one.
template <uint kPerThread, typename T>
METAL_FUNC void copy_columns(device const T* from, device T* to, uint size, uint group, uint index, uint threads) {
  const uint first = group * threads * kPerThread + index;
  T v[kPerThread];
  MLXTS_UNROLL for (uint j = 0; j < kPerThread; ++j) if (first + j * threads < size) v[j] = from[first + j * threads];
  MLXTS_UNROLL for (uint j = 0; j < kPerThread; ++j) if (first + j * threads < size) to[first + j * threads] = v[j];
}

}  // namespace mlxts
