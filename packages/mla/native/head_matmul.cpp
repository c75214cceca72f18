// One threadgroup: groupRows tokens × kGroupColumns outputs of a head. For each piece of the contracted dimension the
// weight is packed into panels, by which kPanelRows tokens at a time are multiplied; sums stay in scratch.
#include "head_tiles.h"

using namespace mlxts;

namespace {

constexpr size_t kGroupColumns = HEAD_MATMUL_GROUP_COLUMNS, kDepth = HEAD_MATMUL_DEPTH;
static_assert(kPanelRows == HEAD_MATMUL_PANEL_ROWS && kGroupColumns % kPanelColumns == 0);

// What panels are made of: bf16 as it is where the processor multiplies bf16 by bf16, else f32. Decoded weights are
// rounded to bf16 where the result is.
template <typename X, typename W, typename O>
inline constexpr bool kIsBf16 = std::is_same_v<X, bf16> && std::is_same_v<W, bf16>;
template <typename X, typename S, int Bits, typename O>
inline constexpr bool kIsBf16<X, Affine<S, Bits>, O> = std::is_same_v<X, bf16> && std::is_same_v<O, bf16>;
template <typename X, typename W, typename O>
using Packed = std::conditional_t<kFastBf16Dot && kIsBf16<X, W, O>, bf16x2, float>;
// The same is multiplied by AMX where the processor has it.
#if defined(__AMX_BF16__)
template <typename X, typename W, typename O>
inline constexpr bool kByTiles = kIsBf16<X, W, O>;
#else
template <typename X, typename W, typename O>
inline constexpr bool kByTiles = false;
#endif

// Piece k0 … k0 + depth − 1 of the contracted dimension, for `columns` outputs from n0 on.
struct Piece {
  size_t n0, k0, depth;
  int columns;

  int panels() const { return (columns + kPanelColumns - 1) / kPanelColumns; }
};

// A matrix [columns, depth] if transposed, else [depth, columns], in panels [kDepth / kPerElement][kPanelColumns].
template <typename P, typename W>
void pack_panels(const W* weight, size_t stride, bool transposed, const Piece& piece, P* panels) {
  const ptrdiff_t ahead = kDepth * (transposed ? 1 : stride);
  for (int j = 0; j < piece.columns; j += kPanelColumns, panels += kDepth / kPerElement<P> * kPanelColumns) {
    if (transposed)
      pack_transposed(weight + j * stride, stride, piece.columns - j, piece.depth, ahead, panels);
    else
      pack(weight + j, stride, piece.columns - j, piece.depth, ahead, panels);
  }
}

// The piece of the weight in panels.
template <typename P, typename W>
void pack_weight(const WeightRows<W>& weight, bool transposed, const Piece& piece, float*, P* panels) {
  const W* from = transposed ? weight.row(piece.n0) + piece.k0 : weight.row(piece.k0) + piece.n0;
  pack_panels(from, weight.stride, transposed, piece, panels);
}

// The same of codes, which are decoded into rows of `decoded` first.
template <typename P, typename S, int Bits>
void pack_weight(const WeightRows<Affine<S, Bits>>& weight, bool transposed, const Piece& piece, float* decoded,
                 P* panels) {
  const size_t row = transposed ? piece.n0 : piece.k0, rows = transposed ? piece.columns : piece.depth;
  const size_t column = transposed ? piece.k0 : piece.n0, columns = transposed ? piece.depth : piece.columns;
  Left<P>* to = reinterpret_cast<Left<P>*>(decoded);
  for (size_t r = 0; r < rows; ++r) weight.decode(row + r, column, columns, to + r * columns);
  pack_panels(to, columns, transposed, piece, panels);
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
void multiply(const X* x, size_t stride, int rows, const Piece& piece, const P* panels, float* converted, float* sums) {
  const size_t depth = (piece.depth + kPerElement<P> - 1) / kPerElement<P>;
  for (int m = 0; m < rows; m += kPanelRows) {
    const int some = rows - m < kPanelRows ? rows - m : kPanelRows;
    const LeftRows<P> left = left_rows<P>(x + m * stride, stride, some, piece.depth, converted);
    for (int j = 0; j < piece.panels(); ++j)
      multiply_panel(some, kTileVectors, left.first, left.stride, panels + j * (kDepth / kPerElement<P>)*kPanelColumns,
                     depth, sums + m * kGroupColumns + j * kPanelColumns, kGroupColumns,
                     piece.k0 > 0 ? kKeep : nullptr);
  }
}

// Rounds a row of sums to `out`. What is made of bf16 for further products of bf16 may lose subnormal numbers.
template <typename X, typename W, typename O>
void store_row(const float* sums, size_t columns, O* out) {
  if constexpr ((kFastBf16Dot || kByTiles<X, W, O>) && std::is_same_v<X, bf16> && std::is_same_v<O, bf16>)
    for_lanes(
        columns, [&](size_t i) { store_for_dot(out + i, load(sums + i)); },
        [&](size_t i, int n) { store_partial(out + i, load_partial(sums + i, n), n); });
  else
    convert_row(sums, columns, out);
}

// A threadgroup: rows m0 … of the product, and columns n0 ….
struct Group {
  size_t n0, m0;
  int columns, rows;
};

// The product of the rows of x with the weight; store(row, sums) gets each row of it.
template <typename P, typename X, typename W, typename Store>
void multiply_by_panels(const HeadMatmulParams& p, const HeadMatmulScratch& scratch, const Group& group, const X* x,
                        const WeightRows<W>& weight, Store store) {
  P* panels = reinterpret_cast<P*>(scratch.panels);
  for (size_t k0 = 0; k0 < p.k; k0 += kDepth) {
    const Piece piece{group.n0, k0, p.k - k0 < kDepth ? p.k - k0 : kDepth, group.columns};
    pack_weight(weight, p.transpose, piece, scratch.decoded, panels);
    multiply(x + k0, size_t(p.xHeads) * p.xDim, group.rows, piece, panels, scratch.converted, scratch.sums);
  }
  for (int m = 0; m < group.rows; ++m) store(m, scratch.sums + m * kGroupColumns);
}

#if defined(__AMX_BF16__)
template <typename W, typename Store>
void multiply_by_tiles(const HeadMatmulParams& p, const HeadMatmulScratch& scratch, const Group& group, const bf16* x,
                       const WeightRows<W>& weight, Store store) {
  const TileWeight<W> tiles = {weight, p.k, reinterpret_cast<bf16*>(scratch.decoded),
                               reinterpret_cast<bf16*>(scratch.panels)};
  tiles.pack(p.transpose, group.n0, group.columns);
  const size_t stride = size_t(p.xHeads) * p.xDim;
  for (int m = 0; m < group.rows; m += int(kHeadRows)) {
    const int rows = group.rows - m < int(kHeadRows) ? group.rows - m : int(kHeadRows);
    multiply_rows(x + m * stride, stride, rows, tiles, group.columns, reinterpret_cast<bf16*>(scratch.converted),
                  scratch.sums);
    for (int r = 0; r < rows; ++r) store(m + r, scratch.sums + r * kHeadColumns);
  }
}
#endif

template <typename X, typename W, typename O>
void head_matmul(const Launch& l) {
  const auto& p = l.args<HeadMatmulParams>();
  const auto scratch = scratch_of(l, p);
  const Indices lengths = l.indices(HEAD_MATMUL_LENGTHS);
  const size_t blocks = l.threadgroups[0], row_blocks = l.threadgroups[1];
#if defined(__AMX_BF16__)
  constexpr size_t kColumns = kByTiles<X, W, O> ? kHeadColumns : kGroupColumns;
  const AmxTiles tiles;
#else
  constexpr size_t kColumns = kGroupColumns;
#endif
  for (uint64_t group = l.begin; group < l.end; ++group) {
    const size_t n0 = group % blocks * kColumns, m0 = group / blocks % row_blocks * p.groupRows;
    const size_t head = group / blocks / row_blocks % p.heads, sequence = group / blocks / row_blocks / p.heads;
    const size_t tokens = valid_tokens(p, lengths, sequence);
    if (m0 >= tokens) continue;
    const Group part = {n0, m0, int(p.n - n0 < kColumns ? p.n - n0 : kColumns),
                        int(tokens - m0 < p.groupRows ? tokens - m0 : p.groupRows)};
    const X* x = l.buffer<const X>(HEAD_MATMUL_X) + sequence_x(p, sequence, m0, head);
    const WeightRows<W> weight = weight_rows<W>(l, p, head);
    O* out = l.buffer<O>(HEAD_MATMUL_OUT) + n0;
    const auto store = [&](int m, const float* sums) {
      store_row<X, W>(sums, part.columns, out + head_out(p, sequence * p.tokens + m0 + m, head));
    };
#if defined(__AMX_BF16__)
    if constexpr (kByTiles<X, W, O>) {
      multiply_by_tiles(p, scratch, part, x, weight, store);
      continue;
    }
#endif
    multiply_by_panels<Packed<X, W, O>>(p, scratch, part, x, weight, store);
  }
}

// Of bf16, which may meet bf16.
template <typename W, typename O>
void head_matmul_bf16(const Launch& l) {
  with_left<bf16, std::conditional_t<kIsBf16<bf16, W, O>, bf16, W>>([&]<typename X>() { head_matmul<X, W, O>(l); });
}

}  // namespace

#define HEAD_MATMUL(w, ...)                                                       \
  MLXTS_KERNEL(head_matmul_f32_##w##_f32, head_matmul<float, __VA_ARGS__, float>) \
  MLXTS_KERNEL(head_matmul_f16_##w##_f32, head_matmul<f16, __VA_ARGS__, float>)   \
  MLXTS_KERNEL(head_matmul_bf16_##w##_f32, head_matmul_bf16<__VA_ARGS__, float>)  \
  MLXTS_KERNEL(head_matmul_f32_##w##_f16, head_matmul<float, __VA_ARGS__, f16>)   \
  MLXTS_KERNEL(head_matmul_f16_##w##_f16, head_matmul<f16, __VA_ARGS__, f16>)     \
  MLXTS_KERNEL(head_matmul_f32_##w##_bf16, head_matmul<float, __VA_ARGS__, bf16>) \
  MLXTS_KERNEL(head_matmul_bf16_##w##_bf16, head_matmul_bf16<__VA_ARGS__, bf16>)
MLXTS_WEIGHTS(HEAD_MATMUL)
