// Products of many tokens with a head's weight by AMX: the weight is packed into right tiles once, rows of x are left
// tiles as they lie.
#pragma once
#include "head_matmul.params.h"
#include "matrix_pack.h"
#include "tile_pairs.h"
#include "weight_rows.h"

namespace mlxts {

#if defined(__AMX_BF16__)
inline constexpr size_t kHeadColumns = HEAD_MATMUL_TILE_COLUMNS, kHeadRows = HEAD_MATMUL_TILE_ROWS;
static_assert(kHeadColumns % (2 * kAmxRows) == 0 && kHeadRows == 2 * kAmxRows);

// A weight of bf16, or one that becomes that.
template <typename W>
struct TileWeight {
  WeightRows<W> weight;
  size_t k;       // the contracted dimension
  bf16* decoded;  // rows of codes
  bf16* tiles;    // [columns / 16, steps]

  size_t steps() const { return tiles_of(k, kTileDepth); }
  size_t block_size() const { return steps() * kTileSize; }

  // Columns n0 … n0 + columns − 1 of the product: rows of the weight if `transposed`.
  void pack(bool transposed, size_t n0, size_t columns) const {
    if (transposed) return pack_rows(n0, columns);
    for (size_t s = 0; s < steps(); ++s) pack_step(s, n0, columns);
  }

 private:
  struct Rows {
    const bf16* first;
    size_t stride;
  };
  Rows rows(size_t row, size_t count, size_t column, size_t columns) const {
    if constexpr (kIsCodes<W>) {
      for (size_t r = 0; r < count; ++r) weight.decode(row + r, column, columns, decoded + r * columns);
      return {decoded, columns};
    } else {
      return {weight.row(row) + column, weight.stride};
    }
  }

  void pack_rows(size_t n0, size_t columns) const {
    Largest unused[kAmxRows];
    for (size_t j = 0; j < columns; j += kAmxRows) {
      const size_t some = columns - j < kAmxRows ? columns - j : kAmxRows;
      const Rows from = rows(n0 + j, some, 0, k);
      pack_right<false>([&](int r) { return from.first + r * from.stride; }, int(some), k,
                        tiles + j / kAmxRows * block_size(), unused);
    }
  }

  // Two rows of the weight at a time become pairs of its columns.
  void pack_step(size_t s, size_t n0, size_t columns) const {
    const size_t k0 = s * kTileDepth, count = k - k0 < kTileDepth ? k - k0 : kTileDepth;
    const Rows from = rows(k0, count, n0, columns);
    for (size_t j = 0; j < columns; j += kTileDepth)
      pack_pairs<false>(from.first + j, from.stride, count, columns - j < kTileDepth ? columns - j : kTileDepth,
                        tiles + j / kAmxRows * block_size() + s * kTileSize, block_size());
  }
};

// sums [kHeadRows, kHeadColumns] = x · tiles for up to kHeadRows rows of x, which lie `stride` apart, and `columns`
// columns. `left` has room for so many rows, padded.
template <typename W>
void multiply_rows(const bf16* x, size_t stride, size_t rows, const TileWeight<W>& weight, size_t columns, bf16* left,
                   float* sums) {
  const size_t k = weight.k, depth = weight.steps() * kTileDepth;
  if (k < depth || rows % kAmxRows != 0) {
    for (size_t r = 0; r < round_up(rows, kAmxRows); ++r) {
      const size_t some = r < rows ? k : 0;
      memcpy(left + r * depth, x + r * stride, some * sizeof(bf16));
      memset(left + r * depth + some, 0, (depth - some) * sizeof(bf16));
    }
    x = left;
    stride = depth;
  }
  TileFetch none;
  TileOperands o{
      x,    kAmxRows * stride,       kTileDepth, stride,       weight.tiles, weight.block_size(), weight.steps(),
      sums, kAmxRows * kHeadColumns, kAmxRows,   kHeadColumns, false};
  for (size_t j = 0; j < columns; j += 2 * kAmxRows) {
    multiply_tiles<1, 1>(tiles_of(rows, kAmxRows), columns - j > kAmxRows ? 2 : 1, o, none);
    o.right += 2 * o.rightNext;
    o.sums += 2 * kAmxRows;
  }
}
#endif

}  // namespace mlxts
