// Codes of MLX affine matrices as numbers: w = scale·q + bias, with one scale and one bias for a group of 32, 64 or 128
// neighbors of a row. On the CPU: matrix_affine.h.
#pragma once
#include "metal_kernel.h"

namespace mlxts {

// Eight neighboring columns of a row, centered: q − 8 or q − 128. Then scale·Σqx and bias·Σx do not cancel:
// w = scale·(q − c) + (bias + scale·c).
struct Codes {
  half4 low, high;
};

// Two codes as numbers: 0x6400 | q is 1024 + q as a half, so one operation takes out two codes.
METAL_FUNC half2 pair_of(uint word, uint mask) { return as_type<half2>((word & mask) | 0x64006400u); }

// `four` takes the columns from `column` on, a multiple of 4; `eight` the first columns. Words are in device memory or
// those of a thread.
template <int Bits>
struct Packed;

template <>
struct Packed<4> {
  static METAL_FUNC half4 four(device const uint* words, uint column) {
    const uint word = words[column / 8] >> (column % 8 * 4);
    const half2 a = pair_of((word & 0xfu) | (word & 0xf0u) << 12, 0x000f000fu);
    const half2 b = pair_of((word >> 8 & 0xfu) | (word >> 8 & 0xf0u) << 12, 0x000f000fu);
    return half4(a.x, a.y, b.x, b.y) - half4(1032.0h);
  }
  template <typename Words>
  static METAL_FUNC Codes eight(Words words) {
    const uint word = words[0];
    const half2 a = pair_of(word, 0x000f000fu), b = pair_of(word >> 4, 0x000f000fu);
    const half2 c = pair_of(word >> 8, 0x000f000fu), d = pair_of(word >> 12, 0x000f000fu);
    return {half4(a.x, b.x, c.x, d.x) - half4(1032.0h), half4(a.y, b.y, c.y, d.y) - half4(1032.0h)};
  }
};

template <>
struct Packed<8> {
  template <typename Words>
  static METAL_FUNC half4 four(Words words, uint column) {
    const uint word = words[column / 4];
    const half2 even = pair_of(word, 0x00ff00ffu), odd = pair_of(word >> 8, 0x00ff00ffu);
    return half4(even.x, odd.x, even.y, odd.y) - half4(1152.0h);
  }
  template <typename Words>
  static METAL_FUNC Codes eight(Words words) {
    return {four(words, 0), four(words, 4)};
  }
};

// The bias that goes with centered codes.
template <int Bits>
METAL_FUNC float centered(float scale, float bias) {
  return metal::fma(float(1 << (Bits - 1)), scale, bias);
}

// Four neighbors of a row of a tile, rounded to its dtype; `to` is aligned to all four.
template <typename E>
METAL_FUNC void store_tile(threadgroup E* to, float4 v) {
  *(threadgroup metal::vec<E, 4>*)to = metal::vec<E, 4>(E(v.x), E(v.y), E(v.z), E(v.w));
}
// The same of eight neighbors; `to` lies at a multiple of 16 bytes.
template <typename E>
METAL_FUNC void store_tile(threadgroup E* to, float4 low, float4 high) {
  struct alignas(16) Eight {
    metal::vec<E, 4> low, high;
  };
  *(threadgroup Eight*)to = Eight{metal::vec<E, 4>(E(low.x), E(low.y), E(low.z), E(low.w)),
                                  metal::vec<E, 4>(E(high.x), E(high.y), E(high.z), E(high.w))};
}

}  // namespace mlxts
