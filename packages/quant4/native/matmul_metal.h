// The insides of products with more rows of x. A threadgroup: kM rows of x against kN of W. Rows of x meet the centered
// codes themselves, which every dtype of x holds exactly; scales and biases go over the sums of a group of columns in
// f32: scale·Σqx + bias·Σx. The next tiles are brought meanwhile, so one barrier is enough for a tile.
#pragma once
#include "product_metal.h"
#include "quantized_matmul.params.h"

namespace mlxts {

constant constexpr uint kM = QUANTIZED_MATMUL_TILE_M, kN = QUANTIZED_MATMUL_TILE_ROWS;
constant constexpr uint kThreads = QUANTIZED_MATMUL_THREADS;
// Of a simdgroup.
constant constexpr uint kPartM = QUANTIZED_MATMUL_PART_M, kPartN = QUANTIZED_MATMUL_PART_ROWS;
typedef TileSum<kPartM, kPartN> Products;

// Columns of a tile, and of its pieces, each of which is of one group.
template <typename X>
constexpr uint tile_columns() {
  return QUANTIZED_MATMUL_TILE_BYTES / sizeof(X);
}
template <typename X>
constexpr uint piece_columns() {
  return tile_columns<X>() < 32 ? tile_columns<X>() : 32;
}

// Sums over the columns of a group: of products with codes, and of x.
template <typename X>
struct GroupSums {
  Products products;
  RowSums<X, kPartM> x;
};

template <typename X>
METAL_FUNC void clear(thread GroupSums<X>& group) {
  fill(group.products, 0.0f);
  clear(group.x);
}

template <uint Columns, typename X>
METAL_FUNC void multiply_piece(thread GroupSums<X>& group, threadgroup const X* x, threadgroup const X* codes) {
  constexpr uint kStride = tile_stride<X>(tile_columns<X>());
  for (uint k = 0; k < piece_columns<X>(); k += 16) {
    TileLeft<X, kPartM, 16> left;
    TileRight<X, 16, Columns> right;
    load(left, x + k, kStride);
    load_transposed(right, codes + k, kStride);
    add_row_sums(group.x, left);
    multiply_add_columns(group.products, 0, left, right);
  }
}

// products += scale·Σqx + offset·Σx; the next group begins.
template <uint Columns, typename X>
METAL_FUNC void finish_group(thread Products& products, thread GroupSums<X>& group, threadgroup const float2* scales,
                             uint lane) {
  float x[kPartM / 8];
  MLXTS_UNROLL for (uint r = 0; r < kPartM / 8; ++r) x[r] = group.x.total(r);
  MLXTS_UNROLL for (uint c = 0; c < Columns / 8; ++c) {
    MLXTS_UNROLL for (uint e = 0; e < 2; ++e) {
      const float2 scale = scales[8 * c + matrix_column(lane) + e];  // and offset
      MLXTS_UNROLL for (uint r = 0; r < kPartM / 8; ++r) {
        thread float& sum = products.at(r, c, e);
        sum = metal::fma(scale.x, group.products.at(r, c, e), metal::fma(scale.y, x[r], sum));
      }
    }
  }
  clear(group);
}

// Tiles in threadgroup memory: x [kM, tile_columns], codes [kN, tile_columns], and scale and offset of each row of
// each piece of the codes.
template <typename X>
struct Tiles {
  threadgroup X* x;
  threadgroup X* codes;
  threadgroup float2* scales;

  template <typename Scratch>
  METAL_FUNC Tiles(Scratch scratch, uint i) {
    constexpr uint kStride = tile_stride<X>(tile_columns<X>());
    x = (threadgroup X*)scratch.xTiles + i * kM * kStride;
    codes = (threadgroup X*)scratch.wTiles + i * kN * kStride;
    scales = (threadgroup float2*)scratch.scales + i * kN * (tile_columns<X>() / piece_columns<X>());
  }
};

// Adds the products of tiles whose first column is `column`.
template <uint Columns, typename X>
METAL_FUNC void multiply_tiles(thread Products& products, thread GroupSums<X>& group, ProductPart part,
                               thread const Tiles<X>& tiles, uint column, uint groupSize, uint lane) {
  constexpr uint kPiece = piece_columns<X>(), kStride = tile_stride<X>(tile_columns<X>());
  for (uint k = 0; k < tile_columns<X>(); k += kPiece) {
    multiply_piece<Columns>(group, tiles.x + part.row * kStride + k, tiles.codes + part.column * kStride + k);
    if (((column + k + kPiece) & (groupSize - 1)) == 0)
      finish_group<Columns>(products, group, tiles.scales + k / kPiece * kN + part.column, lane);
  }
}

// The products of m rows of x, of which row r begins at x_at(r), and of the rows of W from row0 on: this simdgroup's
// part.
template <typename X, typename S, int Bits, typename XAt, typename Scratch>
Products multiply(XAt x_at, AffineMatrix<S, Bits> w, Scratch scratch, ProductPart part, uint row0, uint m, uint index) {
  constexpr uint kColumns = tile_columns<X>(), kPiece = piece_columns<X>(), kStride = tile_stride<X>(kColumns);
  constexpr uint kOwn = kN * kColumns / kThreads, kPerRow = kColumns / kOwn;
  static_assert(kPiece % kOwn == 0, "the codes that a thread brings are of one group");
  const uint row = index / kPerRow, column = index % kPerRow * kOwn, lane = index % kSimd;

  TileCopy<X, X, kM, kColumns, kThreads> rows;
  HeldCodes<S, Bits, kOwn> codes;
  Products products;
  GroupSums<X> group;
  fill(products, 0.0f);
  clear(group);
  for (uint next = 0; next < w.cols + kColumns; next += kColumns) {
    // The next tiles begin their way, the last ones are multiplied, then these arrive.
    const Tiles<X> into(scratch, next / kColumns % 2), from(scratch, 1 - next / kColumns % 2);
    if (next < w.cols) {
      rows.start_rows(into.x, x_at, next, m, w.cols - next, index);
      codes.start(w, row0 + row, next + column);
    }
    if (next > 0 && part.columns == kPartN)
      multiply_tiles<kPartN>(products, group, part, from, next - kColumns, w.groupSize, lane);
    else if (next > 0 && part.columns > 0)
      multiply_tiles<kPartN / 2>(products, group, part, from, next - kColumns, w.groupSize, lane);
    if (next >= w.cols) break;
    rows.finish(into.x, index);
    codes.store_codes(into.codes + row * kStride + column);
    if (column % kPiece == 0) into.scales[column / kPiece * kN + row] = float2(float(codes.scale), codes.offset());
    threadgroup_barrier(metal::mem_flags::mem_threadgroup);
  }
  return products;
}

}  // namespace mlxts
