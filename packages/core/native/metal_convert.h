// Copies between float dtypes: bit by bit where they are the same, else rounded once. bfloat is converted with integers,
// since a GPU's arithmetic may flush subnormals.
#pragma once
#include "metal_kernel.h"

namespace mlxts {

METAL_FUNC float widen(float x) { return x; }
METAL_FUNC float widen(half x) { return float(x); }
METAL_FUNC float widen(bfloat x) { return metal::as_type<float>(uint(metal::as_type<ushort>(x)) << 16); }

METAL_FUNC void round_to(thread float& to, float x) { to = x; }
METAL_FUNC void round_to(thread half& to, float x) { to = half(x); }
METAL_FUNC void round_to(thread bfloat& to, float x) {
  const uint bits = metal::as_type<uint>(x);
  const uint rounded = (bits + 0x7fff + (bits >> 16 & 1)) >> 16;
  const bool nan = (bits & 0x7fffffff) > 0x7f800000;
  to = metal::as_type<bfloat>(ushort(nan ? bits >> 16 | 0x40 : rounded));
}

METAL_FUNC void convert(float from, thread float& to) { to = from; }
METAL_FUNC void convert(half from, thread half& to) { to = from; }
METAL_FUNC void convert(bfloat from, thread bfloat& to) { to = from; }
template <typename From, typename To>
METAL_FUNC void convert(From from, thread To& to) {
  round_to(to, widen(from));
}

template <typename To, typename From>
METAL_FUNC To converted(From from) {
  To to;
  convert(from, to);
  return to;
}
template <typename To, typename From>
METAL_FUNC metal::vec<To, 4> converted(metal::vec<From, 4> from) {
  return metal::vec<To, 4>(converted<To>(from.x), converted<To>(from.y), converted<To>(from.z), converted<To>(from.w));
}

// Elements i … i + 3 of n.
template <typename From, typename To>
METAL_FUNC void convert_four(device const From* from, device To* to, uint i, uint n) {
  if (i + 4 <= n) {
    store_four(to + i, converted<To>(four_of(from + i)));
    return;
  }
  for (; i < n; ++i) to[i] = converted<To>(from[i]);
}

}  // namespace mlxts
