// What dequantize and quantized_embedding share: one word to a thread, neighboring words to neighboring threads.
#pragma once
#include "metal_kernel.h"

namespace mlxts {

typedef float f32;
typedef half f16;
typedef bfloat bf16;

// Product and sum are rounded one after the other: apart, no compiler joins them.
template <typename O, int Bits>
METAL_FUNC void decode_word(uint word, float scale, float bias, device O* out) {
#pragma unroll
  for (uint i = 0; i < 32 / Bits; i += 4) {
    const uint4 shifted = uint4(word) >> (uint4(i, i + 1, i + 2, i + 3) * Bits);
    const float4 product = float4(shifted & ((1u << Bits) - 1)) * scale;
    store4(out + i, product + bias);
  }
}

// The row `row` of a matrix into `out`, by all `threads` of a threadgroup.
template <typename S, typename O, int Bits>
METAL_FUNC void decode_row(device const uint* weight, device const S* scales, device const S* biases, ulong row,
                           device O* out, uint cols, uint groupSize, uint index, uint threads) {
  const uint shift = metal::ctz(groupSize), words = cols / 32 * Bits;
  weight += row * words;
  scales += row * (cols >> shift);
  biases += row * (cols >> shift);
  for (uint i = index; i < words; i += threads) {
    const uint column = i * (32 / Bits), group = column >> shift;
    decode_word<O, Bits>(weight[i], float(scales[group]), float(biases[group]), out + column);
  }
}

}  // namespace mlxts

// K(S, O, bits) for every dtype of scales and of the output, and every width.
#define MLXTS_DECODED_WIDTHS(K, S, O) K(S, O, 2) K(S, O, 4) K(S, O, 8)
#define MLXTS_DECODED_OUTPUTS(K, S) \
  MLXTS_DECODED_WIDTHS(K, S, f32) MLXTS_DECODED_WIDTHS(K, S, f16) MLXTS_DECODED_WIDTHS(K, S, bf16)
#define MLXTS_DECODED(K) MLXTS_DECODED_OUTPUTS(K, f32) MLXTS_DECODED_OUTPUTS(K, f16) MLXTS_DECODED_OUTPUTS(K, bf16)
