// Products of a chunk's matrices on tiles: a simdgroup has a strip of 16 rows, in sums of 16 × 16.
#pragma once
#include "chunk_metal.h"
#include "metal_tile.h"

namespace mlxts {

constant constexpr uint kStrip = 16, kStrips = 4;  // rows of a strip, and strips of the longest chunk

typedef TileSum<kStrip, kStrip> StripSum;

// Of a simdgroup, and of a lane in it.
struct Strip {
  uint number, first;      // of the chunk's strips; its first row in the chunk
  uint rows;               // that are real
  uint lane, row, column;  // of the lane's first element of a sum
};

// One of a lane's elements of a StripSum: at(r, c, e), and its row and column.
struct Element {
  uint r, c, e, row, column;
};
constant constexpr uint kElements = kStrip * kStrip / kSimd;

METAL_FUNC Element element_of(uint i, Strip s) {
  const uint r = i / 4, c = i / 2 % 2, e = i % 2;
  return {r, c, e, 8 * r + s.row, 8 * c + s.column + e};
}

// How many of `rows` lie in the strip that begins with row `first`.
METAL_FUNC uint rows_from(uint first, uint rows) { return rows > first ? metal::min(rows - first, kStrip) : 0; }

METAL_FUNC Strip strip_of(uint simdgroup, uint lane, uint chunkRows) {
  const uint first = simdgroup * kStrip;
  return {simdgroup, first, rows_from(first, chunkRows), lane, matrix_row(lane), matrix_column(lane)};
}

// The 16 rows that a simdgroup brings of a tile.
template <typename T, typename E, uint Columns>
using StripCopy = TileCopy<T, E, kStrip, Columns, kSimd>;

METAL_FUNC void clear(thread StripSum (&sums)[kStrips]) {
  MLXTS_UNROLL for (uint j = 0; j < kStrips; ++j) fill(sums[j], 0.0f);
}

// A strip's gates, `from` its first row on.
METAL_FUNC void stage_gates(CumulativeGates to, CumulativeGateTensors from, Strip s) {
  if (s.lane >= kStrip) return;
  const bool real = s.lane < s.rows;
  to.high[s.first + s.lane] = real ? from.high[s.lane * from.stride] : 0.0f;
  to.low[s.first + s.lane] = real && from.carriesLow ? from.low[s.lane * from.stride] : 0.0f;
}

// sums[j] += left · (16 columns of rows 16 j … 16 j + 15 of `right`)ᵀ, for the first `count` sums.
template <typename E>
METAL_FUNC void add_products(thread StripSum (&sums)[kStrips], thread const TileLeft<E, kStrip, 16>& left,
                             threadgroup const E* right, uint stride, uint count) {
  MLXTS_UNROLL for (uint j = 0; j < kStrips; ++j) {
    if (j >= count) continue;
    TileRight<E, 16, kStrip> other;
    load_transposed(other, right + j * kStrip * stride, stride);
    multiply_add(sums[j], left, other);
  }
}

// A strip's real rows and `columns` of its columns, rounded to T.
template <typename T, uint N>
METAL_FUNC void store_strip(thread const TileSum<kStrip, N>& sum, device T* to, uint stride, uint columns, Strip s) {
  MLXTS_UNROLL for (uint r = 0; r < 2; ++r) {
    const uint row = 8 * r + s.row;
    if (row >= s.rows) continue;
    MLXTS_UNROLL for (uint c = 0; c < N / 8; ++c) {
      const uint column = 8 * c + s.column;
      MLXTS_UNROLL for (uint e = 0; e < 2; ++e) {
        if (column + e < columns) to[row * stride + column + e] = T(sum.at(r, c, e));
      }
    }
  }
}

}  // namespace mlxts
