// Rows of MLX affine weights decoded to another dtype.
#pragma once
#include "matrix_affine.h"

namespace mlxts {

// out = scale·q + bias over one row; product and sum each rounded to f32.
template <typename S, typename O, int Bits>
void decode_row(const uint8_t* row, const S* scales, const S* biases, O* out, uint32_t cols, uint32_t groupSize) {
  for (uint32_t g = 0; g * groupSize < cols; ++g) {
    const vf32 scale = splat(to_f32(scales[g])), bias = splat(to_f32(biases[g]));
    const size_t end = size_t(g + 1) * groupSize;
    for (size_t i = size_t(g) * groupSize; i < end; i += kLanes)
      store(out + i, in_register(codes_at<Bits>(row, i) * scale) + bias);
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
