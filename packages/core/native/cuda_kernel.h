// metal_kernel.h in a CUDA translation, where loads and stores of four elements are one access if the address allows.
#pragma once
#include <metal_stdlib>

namespace mlxts {

// Four neighbors as words: of stores of elements, the compiler takes away those that it also finds where these are not
// aligned.
template <typename T>
using AtOnce = metal::vec<uint, sizeof(T)>;

METAL_FUNC void wait_for_kernels() { machine::wait_for_kernels(); }
METAL_FUNC void wait_for_kernels(uint known) { machine::wait_for_kernels(known); }

// These are preferred to the templates of the same names, which must know them.
#define MLXTS_FOUR(T)                                                                                    \
  METAL_FUNC bool aligned_to_four(device const T* at) { return (ulong(at) & (4 * sizeof(T) - 1)) == 0; } \
  METAL_FUNC metal::vec<T, 4> four_at_once(device const T* from) {                                       \
    return *(device const metal::vec<T, 4>*)from;                                                        \
  }                                                                                                      \
  METAL_FUNC float4 load4_at_once(device const T* from) {                                                \
    const metal::vec<T, 4> v = four_at_once(from);                                                       \
    return float4(float(v.x), float(v.y), float(v.z), float(v.w));                                       \
  }                                                                                                      \
  METAL_FUNC metal::vec<T, 4> four_of(device const T* from) {                                            \
    if (!aligned_to_four(from)) return metal::vec<T, 4>(from[0], from[1], from[2], from[3]);             \
    return four_at_once(from);                                                                           \
  }                                                                                                      \
  METAL_FUNC float4 load4(device const T* from) {                                                        \
    const metal::vec<T, 4> v = four_of(from);                                                            \
    return float4(float(v.x), float(v.y), float(v.z), float(v.w));                                       \
  }                                                                                                      \
  METAL_FUNC void store_four_at_once(device T* to, metal::vec<T, 4> v) {                                 \
    *(device AtOnce<T>*)to = as_type<AtOnce<T>>(v);                                                      \
  }                                                                                                      \
  METAL_FUNC void store_four(device T* to, metal::vec<T, 4> v) {                                         \
    if (aligned_to_four(to)) return store_four_at_once(to, v);                                           \
    to[0] = v.x;                                                                                         \
    to[1] = v.y;                                                                                         \
    to[2] = v.z;                                                                                         \
    to[3] = v.w;                                                                                         \
  }                                                                                                      \
  METAL_FUNC void store4_at_once(device T* to, float4 v) {                                               \
    store_four_at_once(to, metal::vec<T, 4>(T(v.x), T(v.y), T(v.z), T(v.w)));                            \
  }                                                                                                      \
  METAL_FUNC void store4(device T* to, float4 v) {                                                       \
    store_four(to, metal::vec<T, 4>(T(v.x), T(v.y), T(v.z), T(v.w)));                                    \
  }
MLXTS_FOUR(float)
MLXTS_FOUR(half)
MLXTS_FOUR(bfloat)
#undef MLXTS_FOUR

}  // namespace mlxts

#include "metal_kernel.h"

namespace mlxts {

// A compiler takes single elements of 16 bits apart, each to a register of its own; words stay as they are.
template <>
struct PackedFour<bfloat> {
  metal::uint2 words;

  static METAL_FUNC PackedFour load(device const bfloat* from) { return {*(device const metal::uint2*)from}; }
  METAL_FUNC void store(device bfloat* to) const thread { *(device metal::uint2*)to = words; }
  static METAL_FUNC PackedFour rounded(float4 v) {
    return {metal::uint2(machine::bf16_pair(v.x, v.y), machine::bf16_pair(v.z, v.w))};
  }
  METAL_FUNC float4 wide() const thread {
    return float4(as_type<float>(words.x << 16), as_type<float>(words.x & 0xffff0000u),
                  as_type<float>(words.y << 16), as_type<float>(words.y & 0xffff0000u));
  }
};

// Pairs are rounded faster than numbers one by one.
template <>
METAL_FUNC float4 round4<bfloat>(float4 v) {
  return PackedFour<bfloat>::rounded(v).wide();
}

// A division of floats takes a long way where the numerator is 0, and this divisor is from 1 to 2.
template <>
METAL_FUNC float4 times_sigmoid<float4>(float4 a, float4 b, float4 x) {
  const float4 root = metal::select(metal::precise::exp(-0.5f * metal::fabs(x)), float4(0.0f), x < float4(-173.0f));
  const float4 factor = metal::select(float4(1.0f), root, x < float4(0.0f));
  const float4 divisor = 1.0f + root * root;
  const float4 inverse = float4(machine::reciprocal_fast(divisor.x), machine::reciprocal_fast(divisor.y),
                                machine::reciprocal_fast(divisor.z), machine::reciprocal_fast(divisor.w));
  return a * factor * inverse * (b * factor);
}

}  // namespace mlxts
