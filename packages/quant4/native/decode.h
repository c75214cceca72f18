// Codes of MLX affine weights: a row is a little-endian stream of codes, low bits first. Nothing assumes alignment.
#pragma once
#include "simd.h"

namespace mlxts {

typedef uint8_t vu8 __attribute__((vector_size(kLanes)));

MLXTS_INLINE uint32_t load_word(const uint8_t* p) {
  uint32_t word;
  memcpy(&word, p, 4);
  return word;
}

// Keeps the compiler from contracting what made v with what uses it.
MLXTS_INLINE vf32 rounded(vf32 v) {
#if defined(__AVX512F__)
  asm("" : "+v"(v));
#elif defined(__x86_64__)
  asm("" : "+x"(v));
#elif defined(__aarch64__)
  asm("" : "+w"(v));
#else
  asm("" : "+m"(v));
#endif
  return v;
}

// The codes of columns i … i + kLanes − 1 of a row, as numbers.
template <int Bits>
MLXTS_INLINE vf32 codes_at(const uint8_t* row, size_t i) {
  const uint8_t* p = row + i * Bits / 8;
  if constexpr (Bits == 8) {
    vu8 v;
    memcpy(&v, p, sizeof v);
    return __builtin_convertvector(__builtin_convertvector(v, vi32), vf32);
  } else if constexpr (kLanes == 4) {
    // Masked in place and scaled by a power of two: no shifts by lane.
    uint32_t bits = 0;
    memcpy(&bits, p, kLanes * Bits / 8);
    constexpr int32_t mask = (1 << Bits) - 1;
    vi32 masks;
    vf32 units;
    for (int l = 0; l < kLanes; ++l) {
      masks[l] = mask << (l * Bits);
      units[l] = 1.0f / float(1 << (l * Bits));
    }
    return __builtin_convertvector(splat_i32(int32_t(bits)) & masks, vf32) * units;
  } else {
    vu32 shifts, words;
    for (int l = 0; l < kLanes; ++l) shifts[l] = uint32_t(l * Bits) % 32;
    if constexpr (kLanes * Bits <= 32) {
      uint32_t bits = 0;
      memcpy(&bits, p, kLanes * Bits / 8);
      words = bits - vu32{};
    } else {
      const vu32 low = load_word(p) - vu32{}, high = load_word(p + 4) - vu32{};
      vu32 upper;
      for (int l = 0; l < kLanes; ++l) upper[l] = l * Bits >= 32 ? ~0u : 0u;
      words = (low & ~upper) | (high & upper);
    }
    return __builtin_convertvector(reinterpret_cast<vi32>((words >> shifts) & ((1u << Bits) - 1)), vf32);
  }
}

// out = scale·q + bias over one row; product and sum each rounded to f32.
template <typename S, typename O, int Bits>
void decode_row(const uint8_t* row, const S* scales, const S* biases, O* out, uint32_t cols, uint32_t groupSize) {
  for (uint32_t g = 0; g * groupSize < cols; ++g) {
    const vf32 scale = splat(to_f32(scales[g])), bias = splat(to_f32(biases[g]));
    const size_t end = size_t(g + 1) * groupSize;
    for (size_t i = size_t(g) * groupSize; i < end; i += kLanes)
      store(out + i, rounded(codes_at<Bits>(row, i) * scale) + bias);
  }
}

}  // namespace mlxts

// X(S, O, bits) for every dtype of scales and of the output, and every width.
#define MLXTS_DECODE_WIDTHS(X, S, O) X(S, O, 2) X(S, O, 4) X(S, O, 8)
#define MLXTS_DECODE_OUTPUTS(X, S) \
  MLXTS_DECODE_WIDTHS(X, S, f32) MLXTS_DECODE_WIDTHS(X, S, f16) MLXTS_DECODE_WIDTHS(X, S, bf16)
#define MLXTS_DECODE_VARIANTS(X) MLXTS_DECODE_OUTPUTS(X, f32) MLXTS_DECODE_OUTPUTS(X, f16) MLXTS_DECODE_OUTPUTS(X, bf16)

namespace mlxts {
using f32 = float;
}
