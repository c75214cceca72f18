// Vectors of four elements at the ends of rows.
#pragma once
#include "metal_kernel.h"

namespace mlxts {

// How many of `end` elements lie from `at` on.
METAL_FUNC uint left(uint at, uint end) { return at < end ? end - at : 0; }

template <typename T>
METAL_FUNC void store_some(device T* to, float4 v, uint count) {
  if (count >= 4) return store4(to, v);
  for (uint i = 0; i < count; ++i) to[i] = T(v[i]);
}

}  // namespace mlxts
