// A threadgroup's part of a dense product: kTileRows × kTileColumns outputs. Tiles of x and of the weight go through
// threadgroup memory, each as it lies in device memory: while one pair of tiles is multiplied, the next is on its way.
#pragma once
#include "metal_tile.h"

namespace mlxts {

constant constexpr uint kTileThreads = 128, kTileRows = 64, kTileColumns = 64, kTileDepthBytes = 64;
// Of a simdgroup.
constant constexpr uint kPartRows = 32, kPartColumns = 32;
typedef TileSum<kPartRows, kPartColumns> Sums;

// Elements of the contracted dimension in a tile.
template <typename E>
constexpr uint tile_depth() {
  return kTileDepthBytes / sizeof(E);
}

// Adds the products of rows of a tile of x [kTileRows, depth] and of columns of a tile of the weight: [kTileColumns, depth] if
// Transpose, else [depth, kTileColumns].
template <uint Columns, bool Transpose, typename E>
METAL_FUNC void multiply(thread Sums& sums, ProductPart part, threadgroup const E* x, threadgroup const E* weight) {
  constexpr uint kDeep = tile_stride<E>(tile_depth<E>()), kWide = tile_stride<E>(kTileColumns);
  x += part.row * kDeep;
  weight += part.column * (Transpose ? kDeep : 1);
  TileProducts<E, kPartRows, kPartColumns, Columns> products(sums);
  for (uint k = 0; k < tile_depth<E>(); k += 16) {
    TileLeft<E, kPartRows, 16> left;
    TileRight<E, 16, Columns> right;
    load(left, x + k, kDeep);
    if (Transpose)
      load_transposed(right, weight + k, kDeep);
    else
      load(right, weight + k * kWide, kWide);
    products.add(left, right);
  }
  products.finish();
}

// Of the weight: outputs in a row, and elements of the contracted dimension.
struct WeightSizes {
  uint n, k;
};

// The sums of a simdgroup of the threadgroup whose `rows` rows of x begin at x_at(0), x_at(1) …, and whose outputs begin
// at column n0. The weight is [n, k] if Transpose, else [k, n].
template <bool Transpose, typename X, typename W, typename RowsOfX>
METAL_FUNC void add_products(thread Sums& sums, ProductPart part, RowsOfX x_at, uint rows, device const W* weight,
                             threadgroup uchar* x_memory, threadgroup uchar* weight_memory, WeightSizes size, uint n0,
                             uint index) {
  // Products of two numbers of one dtype are exact in float; where the dtypes differ, float holds both.
  using E = metal::conditional_t<metal::is_same_v<X, W>, X, float>;
  constexpr uint kDepth = tile_depth<E>();
  constexpr uint kHigh = Transpose ? kTileColumns : kDepth, kWide = Transpose ? kDepth : kTileColumns;
  constexpr uint kXTile = kTileRows * tile_stride<E>(kDepth), kWeightTile = kHigh * tile_stride<E>(kWide);
  TileCopy<X, E, kTileRows, kDepth, kTileThreads> x_copy;
  TileCopy<W, E, kHigh, kWide, kTileThreads> weight_copy;
  threadgroup E* x_tiles = (threadgroup E*)x_memory;
  threadgroup E* weight_tiles = (threadgroup E*)weight_memory;
  const uint columns = size.n - n0;
  weight += Transpose ? ulong(n0) * size.k : n0;
  for (uint k = 0; k < size.k + kDepth; k += kDepth) {
    // The tiles of this turn begin their way, those of the turn before are multiplied, then these arrive.
    const uint here = k / kDepth % 2, before = 1 - here, left = size.k - k;
    threadgroup E* x_tile = x_tiles + here * kXTile;
    threadgroup E* weight_tile = weight_tiles + here * kWeightTile;
    if (k < size.k) {
      x_copy.start_rows(x_tile, x_at, k, rows, left, index);
      if (Transpose)
        weight_copy.start(weight_tile, weight + k, size.k, columns, left, index);
      else
        weight_copy.start(weight_tile, weight + ulong(k) * size.n, size.n, left, columns, index);
    }
    if (k > 0 && part.columns == kPartColumns)
      multiply<kPartColumns, Transpose>(sums, part, x_tiles + before * kXTile, weight_tiles + before * kWeightTile);
    else if (k > 0 && part.columns > 0)
      multiply<kPartColumns / 2, Transpose>(sums, part, x_tiles + before * kXTile, weight_tiles + before * kWeightTile);
    if (k >= size.k) break;
    x_copy.finish(x_tile, index);
    weight_copy.finish(weight_tile, index);
    threadgroup_barrier(metal::mem_flags::mem_threadgroup);
  }
}

}  // namespace mlxts
