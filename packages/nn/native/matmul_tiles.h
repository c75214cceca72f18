// Products of many rows of x with a weight [n, k] by AMX: x is packed into right tiles once, and stays in cache as far
// as it has room there; rows of the weight become left tiles as they lie, some at a time.
#pragma once
#include <algorithm>

#include "amx_product.h"
#include "matmul_panels.h"

namespace mlxts {

#if defined(__AMX_BF16__)
inline constexpr bool kHasTiles = true;

// Rows of a weight that become left tiles at a time, and steps along k of a piece of them: so that it and one of 32
// rows of x have room in the nearest cache beside their sums.
inline constexpr size_t kLeftRows = 2 * kAmxRows;
template <typename X, typename W>
inline constexpr size_t kPieceSteps = 16 / (kPartsOf<X> + kPartsOf<W>);

// Blocks of 16 rows of x, or fewer, whose products take less time than reading the weight.
inline constexpr size_t kFewBlocks = 4;
// Whether there are products of parts, which numbers must fit.
template <typename X, typename W>
inline constexpr bool kChecked = kPartsOf<X> + kPartsOf<W> > 2;

// Rows of x as right tiles: [piece][block of 16 rows][step along k][part].
template <typename X, typename W>
struct RightRows {
  bf16* tiles;
  size_t rows, k;

  size_t blocks() const { return tiles_of(rows, kAmxRows); }
  size_t steps() const { return tiles_of(k, kTileDepth); }
  // The tiles of a block from step `first` of a piece on; those of the next block.
  size_t block_size(size_t first) const {
    return std::min(steps() - first, kPieceSteps<X, W>) * kPartsOf<X> * kTileSize;
  }
  bf16* block(size_t first, size_t i) const {
    return tiles + first * blocks() * kPartsOf<X> * kTileSize + i * block_size(first);
  }

  // Columns of the product to multiply at a time, `most` at most: few where all of x stays in cache, so that rows of
  // the weight come from memory in long stretches; else as many as keep x from going through it too often.
  size_t columns_together(size_t most) const {
    return rows * steps() * kPartsOf<X> * kAmxRowBytes <= size_t(1) << 20 ? kLeftRows : most;
  }

  // What of the piece behind the one from step `first` on is fetched beside rows n … n + kLeftRows − 1 of `columns`.
  FetchRows next_piece(size_t first, size_t n, size_t columns) const {
    const size_t next = first + kPieceSteps<X, W> < steps() ? first + kPieceSteps<X, W> : 0;
    if (steps() <= kPieceSteps<X, W>) return {};
    const size_t bytes = blocks() * block_size(next) * sizeof(bf16);
    const size_t part = round_up(bytes / tiles_of(columns, kLeftRows), 64), at = n / kLeftRows * part;
    if (at >= bytes) return {};
    return {reinterpret_cast<const char*>(block(next, 0)) + at, 0, 1, std::min(part, bytes - at)};
  }

  // Whether tiles hold the numbers to the last digit.
  bool pack(const LeftMatrix<X>& x) const {
    bool fits = true;
    for (size_t m = 0; m < rows; m += kAmxRows) {
      Largest largest[kAmxRows];
      const int some = int(std::min<size_t>(rows - m, kAmxRows));
      for (size_t s = 0; s < steps(); s += kPieceSteps<X, W>) {
        const size_t at = s * kTileDepth, depth = std::min(k - at, kPieceSteps<X, W> * kTileDepth);
        pack_right<kChecked<X, W>>([&](int r) { return x.row(m + r) + at; }, some, depth, block(s, m / kAmxRows),
                                   largest);
      }
      for (int r = 0; r < some; ++r) fits &= largest[r].fits();
    }
    return fits || !kChecked<X, W>;
  }
};

// Rows of a weight as left tiles: [block of 16 rows][step][part], those from `rows` on and elements from `depth` on
// zeros.
template <typename W, bool Checked>
bool pack_left(const W* from, size_t stride, size_t rows, size_t depth, bf16* to) {
  const size_t steps = tiles_of(depth, kTileDepth);
  bool fits = true;
  for (size_t r = 0; r < round_up(rows, kAmxRows); ++r) {
    bf16* row = to + r / kAmxRows * steps * kPartsOf<W> * kTileSize + r % kAmxRows * kTileDepth;
    Largest largest;
    for (size_t s = 0; s < steps; ++s) {
      TileRow<W> v = {};
      if (r < rows) v = load_tile_row<Checked>(from + r * stride + s * kTileDepth, depth - s * kTileDepth, largest);
      for (int i = 0; i < kPartsOf<W>; ++i)
        memcpy(row + (s * kPartsOf<W> + i) * kTileSize, &v.parts[i], sizeof v.parts[i]);
    }
    if constexpr (Checked) fits &= largest.fits();
  }
  return fits;
}

// The part of a weight that follows one of `depth` elements of the rows n … n + kLeftRows − 1 of `columns` rows from n0
// on.
template <typename W>
FetchRows next_left(const Weight<W>& weight, size_t n0, size_t columns, size_t n, size_t k0, size_t depth) {
  size_t row = n0 + n + kLeftRows;
  if (n + kLeftRows >= columns) {
    row = n0, k0 += depth;
    if (k0 >= weight.k) row = n0 + columns, k0 = 0;
  }
  if (row >= weight.n) return {};
  return {reinterpret_cast<const char*>(weight.first + row * weight.k + k0), weight.k * sizeof(W),
          std::min(weight.n - row, kLeftRows), std::min(depth, weight.k - k0) * sizeof(W)};
}

// sums = weight · xᵀ for `columns` rows of the weight from n0 on, in tiles [row of the weight][row of x], block of the
// weight's rows by block of x's. Whether they are right to the last digit.
template <typename X, typename W>
bool multiply_tiles(const RightRows<X, W>& x, const Weight<W>& weight, size_t n0, size_t columns, bf16* left,
                    float* sums) {
  constexpr size_t kSteps = kPieceSteps<X, W>;
  const size_t blocks = x.blocks();
  bool fits = true;
  for (size_t s = 0; s < x.steps(); s += kSteps) {
    const size_t steps = std::min(x.steps() - s, kSteps), k0 = s * kTileDepth;
    const size_t depth = std::min(weight.k - k0, steps * kTileDepth);
    for (size_t n = 0; n < columns; n += kLeftRows) {
      const size_t rows = std::min(columns - n, kLeftRows);
      fits &= pack_left<W, kChecked<X, W>>(weight.first + (n0 + n) * weight.k + k0, weight.k, rows, depth, left);
      TileFetch fetch{next_left(weight, n0, columns, n, k0, depth), x.next_piece(s, n, columns)};
      // Beside few products this would be too much at once; then the hardware follows the rows of the weight better.
      if (blocks > kFewBlocks) fetch.spread(steps * tiles_of(blocks, 2));
      TileOperands o{left,
                     steps * kPartsOf<W> * kTileSize,
                     kTileSize,
                     kTileDepth,
                     x.block(s, 0),
                     x.block_size(s),
                     steps,
                     sums + n / kAmxRows * blocks * kSumsSize,
                     blocks * kSumsSize,
                     kSumsSize,
                     kAmxRows,
                     s > 0};
      for (size_t m = 0; m < blocks; m += 2) {
        multiply_tiles<kPartsOf<W>, kPartsOf<X>>(tiles_of(rows, kAmxRows), std::min<size_t>(blocks - m, 2), o, fetch);
        o.right += 2 * o.rightNext;
        o.sums += 2 * kSumsSize;
      }
    }
  }
  return fits;
}

// body(row, rows, column, columns, sums) for up to 16 rows of the product and kGroupColumns columns at a time: their
// sums [16][kGroupColumns].
template <typename Body>
void for_tile_rows(const float* sums, size_t rows, size_t columns, Body body) {
  const size_t blocks = tiles_of(rows, kAmxRows);
  alignas(64) float block[kAmxRows][kGroupColumns];
  for (size_t m = 0; m < blocks; ++m)
    for (size_t n = 0; n < columns; n += kGroupColumns) {
      const size_t some = columns - n < kGroupColumns ? columns - n : kGroupColumns;
      for (size_t j = 0; j < some; j += kAmxRows) {
        const float* tile = sums + ((n + j) / kAmxRows * blocks + m) * kSumsSize;
        vf32 v[kLanes];
        for (int i = 0; i < kLanes; ++i) v[i] = load(tile + i * kAmxRows);
        transpose(v);
        for (int i = 0; i < kLanes; ++i) store(&block[i][j], v[i]);
      }
      const size_t row = m * kAmxRows;
      body(row, rows - row < kAmxRows ? rows - row : kAmxRows, n, some, block[0]);
    }
}
#else
inline constexpr bool kHasTiles = false;
#endif

}  // namespace mlxts
