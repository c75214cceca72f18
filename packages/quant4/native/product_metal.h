// What the products with many rows of x share: the matrices of a stack, and the linear bias.
#pragma once
#include "affine.h"
#include "metal_affine_tile.h"

namespace mlxts {

// Matrix number `matrix` of a stack that begins at the given addresses.
template <int Bits, typename S, typename P>
METAL_FUNC AffineMatrix<S, Bits> weights_at(device const uint* weight, device const S* scales, device const S* biases,
                                            constant P& p, ulong matrix) {
  const ulong row = matrix * p.rows, groups = row * (p.cols / p.groupSize);
  return {weight + row * (p.cols / 32 * Bits), scales + groups, biases + groups, p.rows, p.cols, p.groupSize};
}

// What is added to the outputs of a column.
struct LinearBias {
  device const uchar* bias;
  uint dtype;

  METAL_FUNC float operator()(uint column) const thread { return linear_bias(bias, dtype, column); }
};

}  // namespace mlxts
