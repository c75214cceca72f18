// Products of many rows of x with a weight: for each piece of the contracted dimension kGroupColumns columns of the
// weight are packed into panels, by which kPanelRows rows of x at a time are multiplied.
#pragma once
#include "matrix_pack.h"
#include "row_order.h"

namespace mlxts {

inline constexpr size_t kGroupColumns = 64, kPieceRows = 128;
static_assert(kGroupColumns % kPanelColumns == 0);

// What panels are made of: bf16 as it is where the processor multiplies bf16 by bf16, else f32.
template <typename X, typename W>
using Packed = std::conditional_t<kDotsBf16<X, W>, bf16x2, float>;

// Elements of the contracted dimension in kPieceRows rows of a panel.
template <typename P>
inline constexpr size_t kPieceDepth = kPieceRows * kPerElement<P>;

// Piece k0 … k0 + kPieceDepth − 1 of the contracted dimension, for the columns of a threadgroup.
struct Piece {
  size_t n0, k0, depth;
  int columns;

  int panels() const { return (columns + kPanelColumns - 1) / kPanelColumns; }
};

// A weight [n, k] (transpose) or [k, n].
template <typename W>
struct Weight {
  const W* first;
  size_t n, k;
  bool transpose;

  // The piece from column n0 and element k0 on.
  template <typename P>
  Piece piece(size_t n0, size_t k0) const {
    return {n0, k0, k - k0 < kPieceDepth<P> ? k - k0 : kPieceDepth<P>,
            int(n - n0 < kGroupColumns ? n - n0 : kGroupColumns)};
  }
};

// Rows of x, k elements long: row m is number order.at(m) from `first` on.
template <typename X>
struct LeftMatrix {
  const X* first;
  size_t k;
  RowOrder order;

  const X* row(size_t m) const { return first + order.at(m) * k; }
};

// The piece of the weight in panels [kPieceRows][kPanelColumns].
template <typename P, typename W>
void pack_weight(const Weight<W>& weight, const Piece& piece, P* panels) {
  // Elements of the weight from one contracted element, and from one output column, to the next.
  const size_t step = weight.transpose ? 1 : weight.n, column = weight.transpose ? weight.k : 1;
  for (int j = 0; j < piece.columns; j += kPanelColumns, panels += kPieceRows * kPanelColumns) {
    const W* from = weight.first + (piece.n0 + j) * column + piece.k0 * step;
    if (weight.transpose)
      pack_transposed(from, column, piece.columns - j, piece.depth, 0, panels);
    else
      pack(from, step, piece.columns - j, piece.depth, 0, panels);
  }
}

// The piece of the weight that is packed next, fetched line by line while products keep the processor busy.
struct Ahead {
  const char* row = nullptr;
  size_t stride = 0, rows = 0, bytes = 0;  // of a row; rows that are left
  size_t at = 0, lines = 0;                // in the row; at a time

  MLXTS_INLINE void step() {
    for (size_t i = 0; i < lines && rows > 0; ++i) {
      __builtin_prefetch(row + at, 0, 2);
      at += 64;
      if (at >= bytes) at = 0, row += stride, --rows;
    }
  }
};

// What follows a piece, of the same columns or the first of the next ones, in `steps` steps.
template <typename P, typename W>
Ahead after(const Weight<W>& weight, const Piece& piece, size_t steps) {
  Piece next = weight.template piece<P>(piece.n0, piece.k0 + kPieceDepth<P>);
  if (next.k0 >= weight.k) next = weight.template piece<P>(piece.n0 + kGroupColumns, 0);
  if (next.n0 >= weight.n) return {};
  const W* first = weight.first + (weight.transpose ? next.n0 * weight.k + next.k0 : next.k0 * weight.n + next.n0);
  const size_t stride = weight.transpose ? weight.k : weight.n;
  const size_t rows = weight.transpose ? next.columns : next.depth;
  const size_t bytes = (weight.transpose ? next.depth : next.columns) * sizeof(W);
  return {reinterpret_cast<const char*>(first),  stride * sizeof(W), rows, bytes, 0,
          rows * ((bytes + 63) / 64) / steps + 1};
}

// A row of x from element k0 on as panels meet it: as it lies where that is possible, else converted into `to`.
template <typename P, typename X>
const Left<P>* left_row(const X* x, const Piece& piece, Left<P>* to) {
  x += piece.k0;
  if constexpr (std::is_same_v<Left<P>, X>) {
    if (piece.depth % kPerElement<P> == 0) return x;
    memcpy(to, x, piece.depth * sizeof(X));
  } else {
    convert_row(x, piece.depth, to);
  }
  if (piece.depth % kPerElement<P> > 0) to[piece.depth] = {};
  return to;
}

// Elements of a row of a panel, a vector of them.
MLXTS_INLINE vf32 load_columns(const float* panel) { return load(panel); }
MLXTS_INLINE vu32 load_columns(const bf16x2* panel) { return load_bf16x2(panel); }

// Rows of a panel that are multiplied between two steps of what is fetched ahead.
inline constexpr size_t kStepRows = 16;

// sums (+)= a · panel for Rows rows of a.
template <typename P, int Rows>
__attribute__((noinline)) void multiply_rows(const Left<P>* const* a, const P* panel, size_t depth, bool more,
                                             float* sums, Ahead& ahead) {
  RegisterTile<Rows, kTileVectors> tile;
  if (more) tile.each([&](size_t r, size_t j, vf32& sum) { sum = load(sums + r * kGroupColumns + j); });
  const Left<P>* row[Rows];
  MLXTS_UNROLL
  for (int r = 0; r < Rows; ++r) row[r] = a[r];
  for (size_t i = 0; i < depth;) {
    ahead.step();
    const size_t end = depth - i < kStepRows ? depth : i + kStepRows;
    for (; i < end; ++i) {
      decltype(load_columns(panel)) columns[kTileVectors];
      MLXTS_UNROLL
      for (int v = 0; v < kTileVectors; ++v) columns[v] = load_columns(panel + i * kPanelColumns + v * kLanes);
      tile.add_rows([&](int r) { return row[r] + i * kPerElement<P>; }, columns);
    }
  }
  tile.each([&](size_t r, size_t j, vf32 sum) { store(sums + r * kGroupColumns + j, sum); });
}

// sums (+)= x · panels for the first `rows` rows of x, in tiles of rows that are as equal as can be: in small ones the
// processor waits for its own sums.
template <typename P, typename X, typename W>
void multiply(const LeftMatrix<X>& x, int rows, const Weight<W>& weight, const Piece& piece, const P* panels,
              float* converted, float* sums) {
  typedef void (*Tile)(const Left<P>* const*, const P*, size_t, bool, float*, Ahead&);
  static constexpr Tile tile[] = {multiply_rows<P, 1>, multiply_rows<P, 2>, multiply_rows<P, 3>,
                                  multiply_rows<P, 4>, multiply_rows<P, 5>, multiply_rows<P, 6>};
  const size_t depth = (piece.depth + kPerElement<P> - 1) / kPerElement<P>;
  const int tiles = (rows + kPanelRows - 1) / kPanelRows;
  Ahead ahead = after<P>(weight, piece, tiles * piece.panels() * ((depth + kStepRows - 1) / kStepRows));
  for (int i = 0, m = 0; i < tiles; ++i) {
    const int some = (rows - m + tiles - i - 1) / (tiles - i);
    const Left<P>* left[kPanelRows];
    for (int r = 0; r < some; ++r)
      left[r] = left_row<P>(x.row(m + r), piece, reinterpret_cast<Left<P>*>(converted) + r * kPieceDepth<P>);
    for (int j = 0; j < piece.panels(); ++j)
      tile[some - 1](left, panels + j * kPieceRows * kPanelColumns, depth, piece.k0 > 0,
                     sums + m * kGroupColumns + j * kPanelColumns, ahead);
    m += some;
  }
}

// The scratch of a thread: a group of panels, rows of x as panels meet them, the sums of its rows.
struct PanelScratch {
  float *panels, *converted, *sums;
};

// sums = x · weight for the first `rows` rows of x and kGroupColumns columns of the product from column n0 on.
template <typename X, typename W>
void multiply_columns(const LeftMatrix<X>& x, int rows, const Weight<W>& weight, size_t n0,
                      const PanelScratch& scratch) {
  using P = Packed<X, W>;
  P* panels = reinterpret_cast<P*>(scratch.panels);
  for (size_t k0 = 0; k0 < weight.k; k0 += kPieceDepth<P>) {
    const Piece piece = weight.template piece<P>(n0, k0);
    pack_weight(weight, piece, panels);
    multiply<P>(x, rows, weight, piece, panels, scratch.converted, scratch.sums);
  }
}

// All kernels share these, which are compiled with matmul.cpp.
#define MLXTS_MULTIPLY_COLUMNS(X, W) \
  template void multiply_columns(const LeftMatrix<X>&, int, const Weight<W>&, size_t, const PanelScratch&)
extern MLXTS_MULTIPLY_COLUMNS(float, float);
extern MLXTS_MULTIPLY_COLUMNS(float, f16);
extern MLXTS_MULTIPLY_COLUMNS(float, bf16);
extern MLXTS_MULTIPLY_COLUMNS(f16, float);
extern MLXTS_MULTIPLY_COLUMNS(f16, f16);
extern MLXTS_MULTIPLY_COLUMNS(f16, bf16);
extern MLXTS_MULTIPLY_COLUMNS(bf16, float);
extern MLXTS_MULTIPLY_COLUMNS(bf16, f16);
extern MLXTS_MULTIPLY_COLUMNS(bf16, bf16);
#if MLXTS_FAST_BF16_DOT
extern MLXTS_MULTIPLY_COLUMNS(widened_bf16, bf16);
#endif

}  // namespace mlxts
