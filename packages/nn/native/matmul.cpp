// One threadgroup: groupRows × kGroupColumns outputs. For each piece of the contracted dimension the weight's columns are
// packed into panels, by which kPanelRows rows of x at a time are multiplied; sums stay in scratch until the last piece.
#include "cpu_kernel.h"
#include "matmul.params.h"
#include "matrix_pack.h"

using namespace mlxts;

namespace {

constexpr size_t kGroupColumns = MATMUL_GROUP_COLUMNS, kDepth = MATMUL_DEPTH;
static_assert(kPanelRows == MATMUL_PANEL_ROWS && kGroupColumns % kPanelColumns == 0);

// What panels are made of: bf16 as it is where the processor multiplies bf16 by bf16, else f32.
template <typename X, typename W>
using Packed = std::conditional_t<kHasBf16Dot && std::is_same_v<X, bf16> && std::is_same_v<W, bf16>, bf16x2, float>;

// Piece k0 … k0 + kDepth − 1 of the contracted dimension, for the columns of a threadgroup.
struct Piece {
  size_t n0, k0, depth;
  int columns;

  int panels() const { return (columns + kPanelColumns - 1) / kPanelColumns; }
};

// The piece of the weight in panels [kDepth / kPerElement][kPanelColumns].
template <typename P, typename W>
void pack_weight(const MatmulParams& p, const W* weight, const Piece& piece, P* panels) {
  // Elements of the weight from one contracted element, and from one output column, to the next.
  const size_t step = p.transpose ? 1 : p.n, column = p.transpose ? p.k : 1;
  // What is packed next: the next piece, or the first piece of the next columns.
  const ptrdiff_t ahead = piece.k0 + kDepth < p.k ? kDepth * step : kGroupColumns * column - piece.k0 * step;
  for (int j = 0; j < piece.columns; j += kPanelColumns, panels += kDepth / kPerElement<P> * kPanelColumns) {
    const W* from = weight + (piece.n0 + j) * column + piece.k0 * step;
    if (p.transpose)
      pack_transposed(from, column, piece.columns - j, piece.depth, ahead, panels);
    else
      pack(from, step, piece.columns - j, piece.depth, ahead, panels);
  }
}

// Rows of x as panels meet them: as they lie where that is possible, else converted into `to`.
template <typename P, typename X>
const Left<P>* left_rows(const X* x, size_t stride, int rows, size_t depth, float* to, size_t& left_stride) {
  if constexpr (std::is_same_v<Left<P>, X>)
    if (depth % kPerElement<P> == 0) {
      left_stride = stride;
      return x;
    }
  Left<P>* left = reinterpret_cast<Left<P>*>(to);
  left_stride = kDepth;
  for (int r = 0; r < rows; ++r, x += stride, left += kDepth) {
    convert_row(x, depth, left);
    if (kPerElement<P> == 2) left[depth] = {};
  }
  return left - rows * kDepth;
}

// sums (+)= x · panels for `rows` rows of x.
template <typename P, typename X>
void multiply(const MatmulParams& p, const X* x, int rows, const Piece& piece, const P* panels, float* converted,
              float* sums) {
  const size_t depth = (piece.depth + kPerElement<P> - 1) / kPerElement<P>;
  for (int m = 0; m < rows; m += kPanelRows, x += kPanelRows * p.k) {
    const int some = rows - m < kPanelRows ? rows - m : kPanelRows;
    size_t stride;
    const Left<P>* left = left_rows<P>(x, p.k, some, piece.depth, converted, stride);
    for (int j = 0; j < piece.panels(); ++j)
      multiply_panel(some, kTileVectors, left, stride, panels + j * (kDepth / kPerElement<P>)*kPanelColumns, depth,
                     sums + m * kGroupColumns + j * kPanelColumns, kGroupColumns, piece.k0 > 0 ? kKeep : nullptr);
  }
}

// Rounds sums, with the bias added, to rows of out.
template <typename X, typename O>
void store_rows(const MatmulParams& p, const float* sums, const void* bias, size_t n0, int columns, size_t m0, int rows,
                void* out) {
  for (int m = 0; m < rows; ++m, sums += kGroupColumns) {
    O* to = static_cast<O*>(out) + (m0 + m) * p.n + n0;
    const auto finish = [&](size_t i, auto get) {
      if (!bias) return get(sums + i);
      return p.biasF32 ? get(sums + i) + get(static_cast<const float*>(bias) + n0 + i)
                       : get(sums + i) + get(static_cast<const X*>(bias) + n0 + i);
    };
    for_lanes(
        columns, [&](size_t i) { store(to + i, finish(i, [](auto* at) { return load(at); })); },
        [&](size_t i, int n) { store_partial(to + i, finish(i, [n](auto* at) { return load_partial(at, n); }), n); });
  }
}

template <typename X, typename W>
void matmul(const Launch& l, decltype(store_rows<X, float>)* store) {
  const auto& p = l.args<MatmulParams>();
  using P = Packed<X, W>;
  const X* x = l.buffer<const X>(MATMUL_X);
  const W* weight = l.buffer<const W>(MATMUL_WEIGHT);
  const auto scratch = scratch_of(l, p);
  P* panels = reinterpret_cast<P*>(scratch.panels);
  for (uint64_t group = l.begin; group < l.end; ++group) {
    const size_t n0 = group % l.threadgroups[0] * kGroupColumns, m0 = group / l.threadgroups[0] * p.groupRows;
    const int columns = int(p.n - n0 < kGroupColumns ? p.n - n0 : kGroupColumns);
    const int rows = int(p.m - m0 < p.groupRows ? p.m - m0 : p.groupRows);
    for (size_t k0 = 0; k0 < p.k; k0 += kDepth) {
      const Piece piece{n0, k0, p.k - k0 < kDepth ? p.k - k0 : kDepth, columns};
      pack_weight(p, weight, piece, panels);
      multiply<P>(p, x + m0 * p.k + k0, rows, piece, panels, scratch.converted, scratch.sums);
    }
    store(p, scratch.sums, l.buffer<const void>(MATMUL_BIAS), n0, columns, m0, rows, l.buffer<void>(MATMUL_OUT));
  }
}

}  // namespace

#define MATMUL(x, w, o, X, W, O) \
  MLXTS_KERNEL(matmul_##x##_##w##_##o, [](const Launch& launch) { matmul<X, W>(launch, store_rows<X, O>); })
#define MATMUL_OUTPUTS(x, w, X, W) \
  MATMUL(x, w, f32, X, W, float)   \
  MATMUL(x, w, f16, X, W, f16)     \
  MATMUL(x, w, bf16, X, W, bf16)
#define MATMUL_WEIGHTS(x, X)       \
  MATMUL_OUTPUTS(x, f32, X, float) \
  MATMUL_OUTPUTS(x, f16, X, f16)   \
  MATMUL_OUTPUTS(x, bf16, X, bf16)
MATMUL_WEIGHTS(f32, float)
MATMUL_WEIGHTS(f16, f16)
MATMUL_WEIGHTS(bf16, bf16)
