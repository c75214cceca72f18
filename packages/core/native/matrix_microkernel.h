// The inner loops of matrix products c += a · b: register tiles, which keep their sums in registers while k goes by.
// Operands are f32, or bf16 that meet two by two along k (bf16x2).
#pragma once
#include "matrix_dot.h"

namespace mlxts {

// Vectors of columns of the widest register tile.
#if defined(__AVX512F__) || defined(__aarch64__)
inline constexpr int kTileVectors = 4;
#else
inline constexpr int kTileVectors = 2;
#endif

// The sums of `Rows` rows by `Vectors` vectors of columns.
template <int Rows, int Vectors>
struct RegisterTile {
  static constexpr int rows = Rows, vectors = Vectors;
  size_t row = 0, column = 0;  // of its first element in the product
  vf32 sum[Rows][Vectors] = {};

  // sum += a · b over `depth` elements along k: a(r, k) at a[r · row_stride + k · k_stride], row k of b at
  // b + k · b_stride. The pointers are those of the tile's first row and first column.
  MLXTS_INLINE void accumulate(const float* a, size_t row_stride, size_t k_stride, const float* b, size_t b_stride,
                               size_t depth) {
    for (size_t k = 0; k < depth; ++k) {
      vf32 columns[Vectors];
      MLXTS_UNROLL
      for (int v = 0; v < Vectors; ++v) columns[v] = load(b + k * b_stride + v * kLanes);
      add(a + k * k_stride, row_stride, columns);
    }
  }
  // The same over `depth` bf16x2 along k: those of a at a[r · row_stride + i · k_stride], counted in bf16, at any
  // alignment; row i of b at b + i · b_stride.
  MLXTS_INLINE void accumulate(const bf16* a, size_t row_stride, size_t k_stride, const bf16x2* b, size_t b_stride,
                               size_t depth) {
    for (size_t i = 0; i < depth; ++i) {
      vu32 columns[Vectors];
      MLXTS_UNROLL
      for (int v = 0; v < Vectors; ++v) columns[v] = load_bf16x2(b + i * b_stride + v * kLanes);
      add(a + i * k_stride, row_stride, columns);
    }
  }
  // One step of these: an element of a from each row, times `columns`.
  template <typename A, typename Column>
  MLXTS_INLINE void add(const A* a, size_t row_stride, const Column (&columns)[Vectors]) {
    add_rows([&](int r) { return a + r * row_stride; }, columns);
  }
  // The same of rows anywhere: at(r) is where the element of row r lies.
  template <typename At>
  MLXTS_INLINE void add_rows(At at, const vf32 (&columns)[Vectors]) {
    MLXTS_UNROLL
    for (int r = 0; r < Rows; ++r) {
      const vf32 left = splat(*at(r));
      MLXTS_UNROLL
      for (int v = 0; v < Vectors; ++v) sum[r][v] = fma(left, columns[v], sum[r][v]);
    }
  }
  template <typename At>
  MLXTS_INLINE void add_rows(At at, const vu32 (&columns)[Vectors]) {
    MLXTS_UNROLL
    for (int r = 0; r < Rows; ++r) {
      const vu32 left = splat_bf16x2(at(r));
      MLXTS_UNROLL
      for (int v = 0; v < Vectors; ++v) sum[r][v] = dot_bf16x2(sum[r][v], left, columns[v]);
    }
  }

  // Multiplies the sums of each row of the product by factor[row].
  MLXTS_INLINE void scale_rows(const float* factor) {
    MLXTS_UNROLL
    for (int r = 0; r < Rows; ++r) {
      MLXTS_UNROLL
      for (int v = 0; v < Vectors; ++v) sum[r][v] *= splat(factor[row + r]);
    }
  }
  // body(row, column, sum) for every vector.
  template <typename Body>
  MLXTS_INLINE void each(Body body) {
    MLXTS_UNROLL
    for (int r = 0; r < Rows; ++r) {
      MLXTS_UNROLL
      for (int v = 0; v < Vectors; ++v) body(row + r, column + v * kLanes, sum[r][v]);
    }
  }
};

// Two ways through a product. Strided: both operands as they lie, tiles of four rows and then of one, each with its own
// inlined body; for products of one chunk in cache, whose sums go through more arithmetic before they are stored.
// Panels: b packed (matrix_pack.h), tiles of up to six rows out of line; for large products, where packing pays.

inline constexpr int kTileRows = 4;

// body(tile) for the tiles of `Rows` rows from `row` on that cover `columns` columns, the last one up to a whole
// vector.
template <int Rows, typename Body>
MLXTS_INLINE void for_tiles_of_row(size_t row, size_t columns, Body& body) {
  size_t column = 0;
  if constexpr (kTileVectors == 4)
    for (; column + 3 * kLanes < columns; column += 4 * kLanes) body(RegisterTile<Rows, 4>{row, column});
  if (column + 2 * kLanes < columns && kTileVectors == 4) {
    body(RegisterTile<Rows, 3>{row, column});
    return;
  }
  for (; column + kLanes < columns; column += 2 * kLanes) body(RegisterTile<Rows, 2>{row, column});
  if (column < columns) body(RegisterTile<Rows, 1>{row, column});
}

// body(tile) for the tiles of the rows r … rows − 1 of a product; the tiles of rows up to `end` cover columns(end)
// columns.
template <typename Columns, typename Body>
MLXTS_INLINE void for_tiles(size_t rows, Columns columns, Body body, size_t r = 0) {
  for (; r + kTileRows <= rows; r += kTileRows) for_tiles_of_row<kTileRows>(r, columns(r + kTileRows), body);
  for (; r < rows; ++r) for_tiles_of_row<1>(r, columns(r + 1), body);
}

// The same with tiles of six rows where a tile has no more than two vectors: as many sums as four rows have are on
// their way through the multipliers at once, which then wait for any that is late.
template <typename Columns, typename Body>
MLXTS_INLINE void for_high_tiles(size_t rows, Columns columns, Body body) {
  constexpr int kHigh = 6;
  size_t r = 0;
  if constexpr (kTileVectors == 2) {
    // Eight rows are two tiles of four, without a row that is left alone.
    for (; rows - r >= kHigh && rows - r != 8 && rows - r != 9; r += kHigh)
      for_tiles_of_row<kHigh>(r, columns(r + kHigh), body);
  }
  for_tiles(rows, columns, body, r);
}

// Panels of b: [k][kPanelColumns], of float, or of bf16x2 and half as many rows. They are padded with zeros, so there
// is no column tail.
inline constexpr int kPanelRows = 6;  // of a, that meet a panel at once
inline constexpr int kPanelColumns = kTileVectors * kLanes;
// Vectors of a panel that has `columns` columns to give.
MLXTS_INLINE int vectors_of(size_t columns) {
  const size_t vectors = (columns + kLanes - 1) / kLanes;
  return int(vectors < kTileVectors ? vectors : kTileVectors);
}
// Row factors that keep what c had.
inline constexpr float kKeep[kPanelRows] = {1, 1, 1, 1, 1, 1};

// What of `a` meets an element of a panel: one float, or two bf16.
template <typename P>
using Left = std::conditional_t<std::is_same_v<P, bf16x2>, bf16, float>;
template <typename P>
inline constexpr size_t kPerElement = sizeof(P) / sizeof(Left<P>);

template <typename P, int Rows, int Vectors>
__attribute__((noinline)) void panel_tile(const Left<P>* a, size_t a_stride, const P* panel, size_t depth, float* c,
                                          size_t c_stride, const float* factors) {
  RegisterTile<Rows, Vectors> tile;
  if (factors) tile.each([&](size_t r, size_t j, vf32& sum) { sum = load(c + r * c_stride + j) * splat(factors[r]); });
  tile.accumulate(a, a_stride, kPerElement<P>, panel, kPanelColumns, depth);
  tile.each([&](size_t r, size_t j, vf32 sum) { store(c + r * c_stride + j, sum); });
}

// c = a · panel, plus factors[r] times what row r of c had if `factors` are given, for `rows` ≤ kPanelRows rows and
// `vectors` ≤ kTileVectors vectors of columns. `depth`: rows of the panel.
template <typename P>
MLXTS_INLINE void multiply_panel(int rows, int vectors, const Left<P>* a, size_t a_stride, const P* panel, size_t depth,
                                 float* c, size_t c_stride, const float* factors) {
  typedef void (*Tile)(const Left<P>*, size_t, const P*, size_t, float*, size_t, const float*);
#define MLXTS_PANEL_TILES(R)                                                      \
  {panel_tile<P, R, 1>,         panel_tile<P, R, 2>,           panel_tile < P, R, \
   kTileVectors == 4 ? 3 : 2 >, panel_tile<P, R, kTileVectors>}
  static constexpr Tile tiles[kPanelRows][4] = {MLXTS_PANEL_TILES(1), MLXTS_PANEL_TILES(2), MLXTS_PANEL_TILES(3),
                                                MLXTS_PANEL_TILES(4), MLXTS_PANEL_TILES(5), MLXTS_PANEL_TILES(6)};
#undef MLXTS_PANEL_TILES
  tiles[rows - 1][vectors - 1](a, a_stride, panel, depth, c, c_stride, factors);
}

}  // namespace mlxts
