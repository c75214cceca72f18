// Operands of the products that the fused chunk kernel makes, as AMX takes them: sums of bf16, planes, whose products
// are summed in f32. A number that is rounded to bf16 is one, an f32 to its last digit is three.
#pragma once
#include "amx_product.h"
#include "chunk.h"
#if defined(__AMX_BF16__)

namespace mlxts {

// Planes of an operand whose numbers are rounded to T.
template <typename T>
inline constexpr int kPlanes = std::is_same_v<T, bf16> ? 1 : 3;

inline constexpr size_t kTileSide = 2 * AmxTiles::kRows;  // of a block of sums, four tiles
inline constexpr size_t kTwoTiles = 2 * kTileSize;

// An operand in the order in which tiles are loaded: for each kTileSide of its rows, or columns of a right operand, and
// each kTileDepth along k, two tiles of each plane; with zeros up to a whole kTileDepth. Rows of a right operand's
// tiles are bf16x2 along k.
template <int kCount>
struct Planes {
  const bf16* at;
  size_t step, side;  // from one kTileDepth to the next, and from one kTileSide

  size_t place(size_t row, size_t k) const { return row / kTileSide * side + k / kTileDepth * step; }
  const bf16* tiles(size_t row, size_t k) const { return at + place(row, k); }
};

// The upper half of x's bits, which is a bf16, and in x what is left.
MLXTS_INLINE vu32 take_plane(vf32& x) {
  const vu32 bits = reinterpret_cast<vu32>(x) & 0xffff0000u;
  x -= reinterpret_cast<vf32>(bits);
  return bits;
}

// Two rows as bf16x2 in kCount planes.
template <int kCount>
MLXTS_INLINE void split_pair(vf32 first, vf32 second, bf16* to) {
  MLXTS_UNROLL
  for (int p = 0; p < kCount; ++p) {
    const vu32 low = take_plane(first) >> 16, both = low | take_plane(second);
    memcpy(to + p * kTwoTiles, &both, sizeof both);
  }
}
// The same in three planes, the first of which is rounded.
MLXTS_INLINE void split_rounded_pair(vf32 first, vf32 second, bf16* to) {
  const vu32 rounded = narrow_bf16x2(first, second);
  memcpy(to, &rounded, sizeof rounded);
  split_pair<2>(first - widen_first(rounded), second - widen_second(rounded), to + kTwoTiles);
}
// Two neighboring vectors of a row in kCount planes.
template <int kCount>
MLXTS_INLINE void split_row(vf32 first, vf32 second, bf16* to) {
  MLXTS_UNROLL
  for (int p = 0; p < kCount; ++p) {
    const vu32 low = take_plane(first), high = take_plane(second);
    const __m512bh both = _mm512_cvtne2ps_pbh(reinterpret_cast<__m512>(high), reinterpret_cast<__m512>(low));
    memcpy(to + p * kTwoTiles, &both, sizeof both);
  }
}

// A block of 32 × 32 sums of a product, `rows` of which there are.
struct TileBlock {
  size_t row, column, rows, columns;
  const float* factors = nullptr;  // of what the product before gave
  alignas(64) float sums[2][kTileSide * kTileSide];

  TileBlock(size_t row, size_t column, size_t rows, size_t columns)
      : row(row), column(column), rows(rows), columns(columns) {}
  // A block at the same place: sums are not copied.
  TileBlock(const TileBlock& other) : TileBlock(other.row, other.column, other.rows, other.columns) {}

  // sums = left · right over `depth` elements along k; plus factors times what they were, if there are factors.
  template <int kLeft, int kRight>
  MLXTS_INLINE void multiply(Planes<kLeft> left, Planes<kRight> right, size_t depth) {
    constexpr int kTerms = kLeft > kRight ? kLeft : kRight;  // smaller terms do not count
    constexpr size_t kRow = kTileDepth * sizeof(bf16);
    AmxTiles::written();
    _tile_zero(0);
    _tile_zero(1);
    _tile_zero(2);
    _tile_zero(3);
    for (size_t k = 0; k < depth; k += kTileDepth) {
      const bf16 *a = left.tiles(row, k), *b = right.tiles(column, k);
      MLXTS_UNROLL
      for (int r = 0; r < kRight; ++r) {
        _tile_loadd(6, b + r * kTwoTiles, kRow);
        _tile_loadd(7, b + r * kTwoTiles + kTileSize, kRow);
        for (int l = 0; l < (kLeft < kTerms - r ? kLeft : kTerms - r); ++l) {
          _tile_loadd(4, a + l * kTwoTiles, kRow);
          _tile_dpbf16ps(0, 4, 6);
          _tile_dpbf16ps(1, 4, 7);
          _tile_loadd(5, a + l * kTwoTiles + kTileSize, kRow);
          _tile_dpbf16ps(2, 5, 6);
          _tile_dpbf16ps(3, 5, 7);
        }
      }
    }
    float* to = sums[factors != nullptr];
    constexpr size_t kBytes = kTileSide * sizeof(float), kBelow = AmxTiles::kRows * kTileSide;
    _tile_stored(0, to, kBytes);
    _tile_stored(1, to + AmxTiles::kRows, kBytes);
    _tile_stored(2, to + kBelow, kBytes);
    _tile_stored(3, to + kBelow + AmxTiles::kRows, kBytes);
  }
  MLXTS_INLINE void scale_rows(const float* factor) { factors = factor + row; }
  // body(row, column, sum) for every vector.
  template <typename Body>
  MLXTS_INLINE void each(Body body) {
    for (size_t r = 0; r < rows; ++r)
      for (size_t c = 0; c < columns; c += kLanes) {
        const size_t at = r * kTileSide + c;
        const vf32 sum = load(sums[0] + at);
        body(row + r, column + c, factors ? fma(sum, splat(factors[r]), load(sums[1] + at)) : sum);
      }
  }
};

struct TileProducts {
  typedef AmxTiles Session;                  // of a call of a kernel
  static constexpr size_t kLinesAhead = 64;  // asked for with each part of a product

  // Rows of whole vectors along k.
  template <typename Own, typename Other>
  static auto left(const float* from, size_t stride, size_t rows, size_t depth, bf16* operand) {
    constexpr int kCount = kPlanes<Own>;
    const Planes<kCount> planes = planes_of<kCount>(depth, operand);
    for (size_t i = 0; i < rows; ++i)
      for (size_t k = 0; k < depth; k += kTileDepth) {
        const float* at = from + i * stride + k;
        bf16* to = operand + planes.place(i, k) + i % kTileSide * kTileDepth;
        split_row<kCount>(load(at), k + kLanes < depth ? load(at + kLanes) : vf32{}, to);
      }
    return planes;
  }
  // Columns: row r of the operand is row r of `transposed`, as right_columns or transpose_columns left it.
  template <typename Own, typename Other>
  static auto left_columns(const float*, size_t, size_t depth, size_t rows, size_t length, const float* transposed,
                           bf16* memory) {
    return left<Own, Other>(transposed, length, rows, depth, memory);
  }
  static void transpose_columns(const float* from, size_t stride, size_t rows, size_t depth, size_t length,
                                float* transposed) {
    transpose_padded({from, stride}, rows, depth, transposed, length);
  }
  // `depth` rows of whole vectors.
  template <typename Own, typename Other>
  static auto right(const float* from, size_t stride, size_t depth, bf16* memory) {
    constexpr int kCount = kPlanes<Own>;
    return right_of<kCount>(from, stride, depth, memory, split_pair<kCount>);
  }
  // The transpose of `rows` rows, with zeros up to `length` columns.
  template <typename Own, typename Other>
  static auto right_columns(const float* from, size_t stride, size_t rows, size_t depth, size_t length,
                            float* transposed, bf16* memory) {
    transpose_columns(from, stride, rows, depth, length, transposed);
    return right<Own, Other>(transposed, length, depth, memory);
  }
  // A panel of the state [depth, stride]; the first plane is its numbers rounded to bf16.
  template <typename>
  static auto state(const float* panel, size_t stride, size_t depth, bf16* memory) {
    return right_of<3>(panel, stride, depth, memory, split_rounded_pair);
  }
  // The same rounded to bf16, after `state` with the same memory.
  template <typename, typename>
  static auto rounded_state(const float*, size_t, size_t depth, float*, const bf16* memory) {
    const Planes<3> all = planes_of<3>(depth, memory);
    return Planes<1>{all.at, all.step, all.side};
  }

  template <typename Columns, typename Body>
  static void for_products(size_t rows, Columns columns, Body body) {
    for (size_t r = 0; r < rows; r += kTileSide) {
      const size_t block = rows - r < kTileSide ? rows - r : kTileSide, width = columns(r + block);
      for (size_t c = 0; c < width; c += kTileSide)
        body(TileBlock(r, c, block, width - c < kTileSide ? width - c : kTileSide));
    }
  }
  template <typename Left, typename Right>
  static MLXTS_INLINE void multiply(TileBlock& block, Left left, Right right, size_t depth) {
    block.multiply(left, right, depth);
  }
  // Two products with one right operand.
  template <typename Left, typename Right>
  static MLXTS_INLINE void multiply_both(TileBlock& one, TileBlock& two, Left left_of_one, Left left_of_two,
                                         Right right, size_t depth) {
    one.multiply(left_of_one, right, depth);
    two.multiply(left_of_two, right, depth);
  }
  template <typename Body>
  static MLXTS_INLINE void each_of_both(TileBlock& one, TileBlock& two, Body body) {
    for (size_t r = 0; r < one.rows; ++r)
      for (size_t c = 0; c < one.columns; c += kLanes) {
        const size_t at = r * kTileSide + c;
        body(one.row + r, one.column + c, load(one.sums[0] + at), load(two.sums[0] + at));
      }
  }

 private:
  template <int kCount>
  static Planes<kCount> planes_of(size_t depth, const bf16* memory) {
    const size_t step = kCount * kTwoTiles;
    return {memory, step, round_up(depth, kTileDepth) / kTileDepth * step};
  }
  template <int kCount, typename Split>
  static MLXTS_INLINE Planes<kCount> right_of(const float* from, size_t stride, size_t depth, bf16* operand,
                                              Split split) {
    const Planes<kCount> planes = planes_of<kCount>(depth, operand);
    for (size_t r = 0; r < round_up(depth, kTileDepth); r += 2)
      for (size_t c = 0; c < stride; c += kLanes) {
        const float* at = from + r * stride + c;
        bf16* to = operand + planes.place(c, r) + c % kTileSide / AmxTiles::kRows * kTileSize +
                   r % kTileDepth * AmxTiles::kRows;
        split(r < depth ? load(at) : vf32{}, r + 1 < depth ? load(at + stride) : vf32{}, to);
      }
    return planes;
  }
};

}  // namespace mlxts
#endif
