// Copies between float dtypes: bit by bit where they are the same, else rounded once. bfloat is converted with integers,
// since a GPU's arithmetic may flush subnormals.
#pragma once
#include "metal_kernel.h"

namespace mlxts {

METAL_FUNC float widen(float x) { return x; }
METAL_FUNC float widen(half x) { return float(x); }
METAL_FUNC float widen(bfloat x) { return metal::as_type<float>(uint(metal::as_type<ushort>(x)) << 16); }

METAL_FUNC void round_to(device float* to, float x) { *to = x; }
METAL_FUNC void round_to(device half* to, float x) { *to = half(x); }
METAL_FUNC void round_to(device bfloat* to, float x) {
  const uint bits = metal::as_type<uint>(x);
  const uint rounded = (bits + 0x7fff + (bits >> 16 & 1)) >> 16;
  const bool nan = (bits & 0x7fffffff) > 0x7f800000;
  *to = metal::as_type<bfloat>(ushort(nan ? bits >> 16 | 0x40 : rounded));
}

METAL_FUNC void convert(device const float* from, device float* to) { *to = *from; }
METAL_FUNC void convert(device const half* from, device half* to) { *to = *from; }
METAL_FUNC void convert(device const bfloat* from, device bfloat* to) { *to = *from; }
template <typename From, typename To>
METAL_FUNC void convert(device const From* from, device To* to) {
  round_to(to, widen(*from));
}

// Elements i … i + 3 of n.
template <typename From, typename To>
METAL_FUNC void convert_four(device const From* from, device To* to, uint i, uint n) {
  if (i + 4 <= n) {
    for (uint j = 0; j < 4; ++j) convert(from + i + j, to + i + j);
    return;
  }
  for (; i < n; ++i) convert(from + i, to + i);
}

}  // namespace mlxts
