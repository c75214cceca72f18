// Products of many rows of x with a weight: for each piece of the contracted dimension kGroupColumns columns of the
// weight are packed into panels, by which kPanelRows rows of x at a time are multiplied.
#pragma once
#include "matrix_pack.h"

namespace mlxts {

inline constexpr size_t kGroupColumns = 64, kPieceRows = 128;
static_assert(kGroupColumns % kPanelColumns == 0);

// What panels are made of: bf16 as it is where the processor multiplies bf16 by bf16, else f32.
template <typename X, typename W>
using Packed = std::conditional_t<kHasBf16Dot && std::is_same_v<X, bf16> && std::is_same_v<W, bf16>, bf16x2, float>;

// Elements of the contracted dimension in kPieceRows rows of a panel.
template <typename P>
inline constexpr size_t kPieceDepth = kPieceRows * kPerElement<P>;

// A weight [n, k] (transpose) or [k, n].
template <typename W>
struct Weight {
  const W* first;
  size_t n, k;
  bool transpose;
};

// Piece k0 … k0 + kPieceDepth − 1 of the contracted dimension, for the columns of a threadgroup.
struct Piece {
  size_t n0, k0, depth;
  int columns;

  int panels() const { return (columns + kPanelColumns - 1) / kPanelColumns; }
};

// The piece of the weight in panels [kPieceRows][kPanelColumns].
template <typename P, typename W>
void pack_weight(const Weight<W>& weight, const Piece& piece, P* panels) {
  // Elements of the weight from one contracted element, and from one output column, to the next.
  const size_t step = weight.transpose ? 1 : weight.n, column = weight.transpose ? weight.k : 1;
  // What is packed next: the next piece, or the first piece of the next columns.
  const ptrdiff_t ahead =
      piece.k0 + kPieceDepth<P> < weight.k ? kPieceDepth<P> * step : kGroupColumns * column - piece.k0 * step;
  for (int j = 0; j < piece.columns; j += kPanelColumns, panels += kPieceRows * kPanelColumns) {
    const W* from = weight.first + (piece.n0 + j) * column + piece.k0 * step;
    if (weight.transpose)
      pack_transposed(from, column, piece.columns - j, piece.depth, ahead, panels);
    else
      pack(from, step, piece.columns - j, piece.depth, ahead, panels);
  }
}

// Rows of x that lie `stride` apart. What takes rows takes any `row(m)`; only these are multiplied where they lie.
template <typename X>
struct EvenRows {
  const X* x;
  size_t stride;

  const X* row(size_t m) const { return x + m * stride; }
};

// Rows m … m + rows − 1 of x from element k0 on as panels meet them: as they lie where that is possible, else
// converted into `to`.
template <typename P, typename Rows>
const Left<P>* left_rows(const Rows& x, size_t m, int rows, const Piece& piece, float* to, size_t& left_stride) {
  using X = std::remove_cvref_t<decltype(*x.row(0))>;
  if constexpr (std::is_same_v<Rows, EvenRows<Left<P>>>)
    if (piece.depth % kPerElement<P> == 0) {
      left_stride = x.stride;
      return x.row(m) + piece.k0;
    }
  Left<P>* left = reinterpret_cast<Left<P>*>(to);
  left_stride = kPieceDepth<P>;
  for (int r = 0; r < rows; ++r, left += left_stride) {
    if constexpr (std::is_same_v<Left<P>, X>)
      memcpy(left, x.row(m + r) + piece.k0, piece.depth * sizeof(X));
    else
      convert_row(x.row(m + r) + piece.k0, piece.depth, left);
    if (kPerElement<P> == 2 && piece.depth < left_stride) left[piece.depth] = {};
  }
  return left - rows * left_stride;
}

// sums (+)= x · panels for `rows` rows of x.
template <typename P, typename Rows>
void multiply(const Rows& x, int rows, const Piece& piece, const P* panels, float* converted, float* sums) {
  const size_t depth = (piece.depth + kPerElement<P> - 1) / kPerElement<P>;
  for (int m = 0; m < rows; m += kPanelRows) {
    const int some = rows - m < kPanelRows ? rows - m : kPanelRows;
    size_t stride;
    const Left<P>* left = left_rows<P>(x, m, some, piece, converted, stride);
    for (int j = 0; j < piece.panels(); ++j)
      multiply_panel(some, kTileVectors, left, stride, panels + j * kPieceRows * kPanelColumns, depth,
                     sums + m * kGroupColumns + j * kPanelColumns, kGroupColumns, piece.k0 > 0 ? kKeep : nullptr);
  }
}

// The scratch of a thread: a group of panels, rows of x as panels meet them, the sums of its rows.
struct PanelScratch {
  float *panels, *converted, *sums;
};

// sums = x · weight for `rows` rows of x and kGroupColumns columns of the product from column n0 on.
template <typename W, typename Rows>
void multiply_columns(const Rows& x, int rows, const Weight<W>& weight, size_t n0, const PanelScratch& scratch) {
  using P = Packed<std::remove_cvref_t<decltype(*x.row(0))>, W>;
  P* panels = reinterpret_cast<P*>(scratch.panels);
  const int columns = int(weight.n - n0 < kGroupColumns ? weight.n - n0 : kGroupColumns);
  for (size_t k0 = 0; k0 < weight.k; k0 += kPieceDepth<P>) {
    const Piece piece{n0, k0, weight.k - k0 < kPieceDepth<P> ? weight.k - k0 : kPieceDepth<P>, columns};
    pack_weight(weight, piece, panels);
    multiply<P>(x, rows, piece, panels, scratch.converted, scratch.sums);
  }
}

}  // namespace mlxts
