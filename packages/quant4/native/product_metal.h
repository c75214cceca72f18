// What the products of a GPU share: the matrices of a stack, a thread's output, and the linear bias.
#pragma once
#include "affine.h"
#include "metal_affine_tile.h"

namespace mlxts {

// Matrix number `matrix` of a stack that begins at the given addresses.
template <int Bits, typename S, typename P>
METAL_FUNC AffineMatrix<S, Bits> weights_at(device const uint* weight, device const S* scales, device const S* biases,
                                            constant P& p, ulong matrix) {
  const ulong row = matrix * p.rows, groups = row * (p.cols >> metal::ctz(p.groupSize));
  return {weight + row * (p.cols / 32 * Bits), scales + groups, biases + groups, p.rows, p.cols, p.groupSize};
}

// The rows of W from row0 on, of which there is one at least.
template <typename S, int Bits>
METAL_FUNC AffineMatrix<S, Bits> rows_from(AffineMatrix<S, Bits> w, uint row0) {
  const ulong groups = ulong(row0) * (w.cols >> metal::ctz(w.groupSize));
  return {w.words + ulong(row0) * (w.cols / 32 * Bits), w.scales + groups, w.biases + groups, w.rows - row0, w.cols,
          w.groupSize};
}

// A thread's output where x has few rows: of row i of x and row r of the threadgroup's rows of W.
struct FewOutput {
  uint i, r;
};

// Products of a row of x with one row of each of two matrices.
struct TwoProducts {
  float first, second;
};

// What is added to the outputs of a column, of which the first is number `first`.
struct LinearBias {
  device const uchar* bias;
  uint dtype, first;

  METAL_FUNC float operator()(uint column) const thread { return linear_bias(bias, dtype, first + column); }
};

}  // namespace mlxts
