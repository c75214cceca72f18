// metal_kernel.h in a CUDA translation, where loads and stores of four elements are one access if the address allows.
#pragma once
#include <metal_stdlib>

namespace mlxts {

// Four neighbors as words: of stores of elements, the compiler takes away those that it also finds where these are not
// aligned.
template <typename T>
using AtOnce = metal::vec<uint, sizeof(T)>;

// These are preferred to the templates of the same names, which must know them.
#define MLXTS_FOUR(T)                                                                                    \
  METAL_FUNC bool aligned_to_four(device const T* at) { return (ulong(at) & (4 * sizeof(T) - 1)) == 0; } \
  METAL_FUNC float4 load4_at_once(device const T* from) {                                                \
    const metal::vec<T, 4> v = *(device const metal::vec<T, 4>*)from;                                    \
    return float4(float(v.x), float(v.y), float(v.z), float(v.w));                                       \
  }                                                                                                      \
  METAL_FUNC metal::vec<T, 4> four_of(device const T* from) {                                            \
    if (!aligned_to_four(from)) return metal::vec<T, 4>(from[0], from[1], from[2], from[3]);             \
    return *(device const metal::vec<T, 4>*)from;                                                        \
  }                                                                                                      \
  METAL_FUNC float4 load4(device const T* from) {                                                        \
    const metal::vec<T, 4> v = four_of(from);                                                            \
    return float4(float(v.x), float(v.y), float(v.z), float(v.w));                                       \
  }                                                                                                      \
  METAL_FUNC void store4(device T* to, float4 v) {                                                       \
    const metal::vec<T, 4> r = metal::vec<T, 4>(T(v.x), T(v.y), T(v.z), T(v.w));                         \
    if (aligned_to_four(to)) {                                                                           \
      *(device AtOnce<T>*)to = as_type<AtOnce<T>>(r);                                                    \
      return;                                                                                            \
    }                                                                                                    \
    to[0] = r.x;                                                                                         \
    to[1] = r.y;                                                                                         \
    to[2] = r.z;                                                                                         \
    to[3] = r.w;                                                                                         \
  }
MLXTS_FOUR(float)
MLXTS_FOUR(half)
MLXTS_FOUR(bfloat)
#undef MLXTS_FOUR

}  // namespace mlxts

#include "metal_kernel.h"
