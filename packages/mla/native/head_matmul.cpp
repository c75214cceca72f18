// One threadgroup: groupRows tokens × kGroupColumns outputs of a head. For each piece of the contracted dimension the
// weight is packed into panels, by which kPanelRows tokens at a time are multiplied; sums stay in scratch.
#include "head_matmul.params.h"
#include "head_weight.h"
#include "matrix_pack.h"

using namespace mlxts;

namespace {

constexpr size_t kGroupColumns = HEAD_MATMUL_GROUP_COLUMNS, kDepth = HEAD_MATMUL_DEPTH;
static_assert(kPanelRows == HEAD_MATMUL_PANEL_ROWS && kGroupColumns % kPanelColumns == 0);

// What panels are made of: bf16 as it is where the processor multiplies bf16 by bf16, else f32.
template <typename X, typename W>
using Packed = std::conditional_t<kHasBf16Dot && std::is_same_v<X, bf16> && std::is_same_v<W, bf16>, bf16x2, float>;

// Piece k0 … k0 + depth − 1 of the contracted dimension, for `columns` outputs from n0 on.
struct Piece {
  size_t n0, k0, depth;
  int columns;

  int panels() const { return (columns + kPanelColumns - 1) / kPanelColumns; }
};

// The piece of the weight in panels [kDepth / kPerElement][kPanelColumns].
template <typename P, typename W>
void pack_weight(const HeadMatmulParams& p, const W* weight, const Piece& piece, P* panels) {
  const ptrdiff_t ahead = kDepth * (p.transpose ? 1 : p.rank);
  for (int j = 0; j < piece.columns; j += kPanelColumns, panels += kDepth / kPerElement<P> * kPanelColumns) {
    const size_t n = piece.n0 + j;
    if (p.transpose)
      pack_transposed(weight + n * p.rank + piece.k0, p.rank, piece.columns - j, piece.depth, ahead, panels);
    else
      pack(weight + piece.k0 * p.rank + n, p.rank, piece.columns - j, piece.depth, ahead, panels);
  }
}

// `rows` rows of x as what meets panels: in place where they are that already, else in `converted`.
template <typename P>
struct LeftRows {
  const Left<P>* first;
  size_t stride;
};
template <typename P, typename X>
LeftRows<P> left_rows(const X* x, size_t stride, int rows, size_t depth, float* converted) {
  if constexpr (std::is_same_v<X, Left<P>>)
    if (depth % kPerElement<P> == 0) return {x, stride};
  Left<P>* left = reinterpret_cast<Left<P>*>(converted);
  for (int r = 0; r < rows; ++r) {
    convert_row(x + r * stride, depth, left + r * kDepth);
    if (kPerElement<P> == 2 && depth % 2) left[r * kDepth + depth] = {};
  }
  return {left, kDepth};
}

// sums (+)= x · panels for `rows` tokens, whose elements lie `stride` apart.
template <typename P, typename X>
void multiply(const X* x, size_t stride, int rows, const Piece& piece, const P* panels, float* converted,
              float* sums) {
  const size_t depth = (piece.depth + kPerElement<P> - 1) / kPerElement<P>;
  for (int m = 0; m < rows; m += kPanelRows) {
    const int some = rows - m < kPanelRows ? rows - m : kPanelRows;
    const LeftRows<P> left = left_rows<P>(x + m * stride, stride, some, piece.depth, converted);
    for (int j = 0; j < piece.panels(); ++j)
      multiply_panel(some, kTileVectors, left.first, left.stride,
                     panels + j * (kDepth / kPerElement<P>)*kPanelColumns, depth,
                     sums + m * kGroupColumns + j * kPanelColumns, kGroupColumns, piece.k0 > 0 ? kKeep : nullptr);
  }
}

template <typename X, typename W, typename O>
void head_matmul(const Launch& l) {
  const auto& p = l.args<HeadMatmulParams>();
  using P = Packed<X, W>;
  const auto scratch = scratch_of(l, p);
  P* panels = reinterpret_cast<P*>(scratch.panels);
  const Indices lengths = l.indices(HEAD_MATMUL_LENGTHS);
  const size_t blocks = l.threadgroups[0], row_blocks = l.threadgroups[1];
  for (uint64_t group = l.begin; group < l.end; ++group) {
    const size_t n0 = group % blocks * kGroupColumns, m0 = group / blocks % row_blocks * p.groupRows;
    const size_t head = group / blocks / row_blocks % p.heads, sequence = group / blocks / row_blocks / p.heads;
    const size_t tokens = valid_tokens(p, lengths, sequence);
    if (m0 >= tokens) continue;
    const int columns = int(p.n - n0 < kGroupColumns ? p.n - n0 : kGroupColumns);
    const int rows = int(tokens - m0 < p.groupRows ? tokens - m0 : p.groupRows);
    const X* x = l.buffer<const X>(HEAD_MATMUL_X) + sequence_x(p, sequence, m0, head);
    const W* weight = l.buffer<const W>(HEAD_MATMUL_WEIGHT) + head_weight(p, head, 0);
    for (size_t k0 = 0; k0 < p.k; k0 += kDepth) {
      const Piece piece{n0, k0, p.k - k0 < kDepth ? p.k - k0 : kDepth, columns};
      pack_weight(p, weight, piece, panels);
      multiply(x + k0, size_t(p.xHeads) * p.xDim, rows, piece, panels, scratch.converted, scratch.sums);
    }
    O* out = l.buffer<O>(HEAD_MATMUL_OUT) + n0;
    for (int m = 0; m < rows; ++m)
      convert_row(scratch.sums + m * kGroupColumns, columns, out + head_out(p, sequence * p.tokens + m0 + m, head));
  }
}

}  // namespace

#define HEAD_MATMUL(x, w, o, X, W, O) MLXTS_KERNEL(head_matmul_##x##_##w##_##o, head_matmul<X, W, O>)
#define HEAD_MATMUL_KERNELS(w, W)             \
  HEAD_MATMUL(f32, w, f32, float, W, float)  \
  HEAD_MATMUL(f16, w, f32, f16, W, float)    \
  HEAD_MATMUL(bf16, w, f32, bf16, W, float)  \
  HEAD_MATMUL(f32, w, f16, float, W, f16)    \
  HEAD_MATMUL(f16, w, f16, f16, W, f16)      \
  HEAD_MATMUL(f32, w, bf16, float, W, bf16)  \
  HEAD_MATMUL(bf16, w, bf16, bf16, W, bf16)
HEAD_MATMUL_KERNELS(f32, float)
HEAD_MATMUL_KERNELS(f16, f16)
HEAD_MATMUL_KERNELS(bf16, bf16)
