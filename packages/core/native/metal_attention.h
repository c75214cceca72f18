// Attention of query rows on a GPU. A simdgroup has some of the rows, whose scores, weights and sums stay in its registers;
// keys and values meet them from tiles in threadgroup memory. Sums and factors are floats. `Tile` says what the rows see:
// tile.limit(row) is the key at which what a row sees ends, tile.sees(row, key) whether it sees one.
#pragma once
#include "metal_tile.h"

namespace mlxts {

// Query rows of a simdgroup, of which a lane has every eighth, and `Columns` columns of their outputs. A denominator is the
// sum over the lane's keys.
template <uint Rows, uint Columns>
struct AttentionRows {
  uint first;
  float maxima[Rows / 8], denominators[Rows / 8];
  TileSum<Rows, Columns> sums;
};

template <uint Rows, uint Columns>
METAL_FUNC void clear(thread AttentionRows<Rows, Columns>& rows) {
  MLXTS_UNROLL for (uint r = 0; r < Rows / 8; ++r) {
    rows.maxima[r] = -FLT_MAX;  // not −∞, from which a score of −∞ has no difference
    rows.denominators[r] = 0.0f;
  }
  fill(rows.sums, 0.0f);
}

// `Width` columns of queries from `from(row)` on, rows of a lane's own, of which `columns` are left; zeros beyond them.
template <typename E, uint Rows, uint Width, typename From>
METAL_FUNC TileLeft<E, Rows, Width> load_queries(From from, uint columns, uint lane) {
  TileSum<Rows, Width> x;
  const uint last = columns - 1, own = matrix_column(lane) < columns ? columns - matrix_column(lane) : 0;
  MLXTS_UNROLL for (uint r = 0; r < Rows / 8; ++r) {
    const auto row = from(8 * r + matrix_row(lane)) + metal::min(matrix_column(lane), last);
    MLXTS_UNROLL for (uint i = 0; i < Width / 4; ++i) {
      const uint at = 8 * (i / 2) + i % 2;
      const float element = float(row[at < own ? at : 0]);  // all loads at once, none waits for a condition
      x.at(r, i / 2, i % 2) = at < own ? element : 0.0f;
    }
  }
  return as_left<E>(x);
}

// Adds the products of queries and the `columns` of a tile of keys, whose rows lie `stride` apart, 32 at a time.
template <typename E, uint Rows, uint Keys, uint Width>
METAL_FUNC void add_scores(thread TileSum<Rows, Keys>& scores, thread const TileLeft<E, Rows, Width>& queries,
                           threadgroup const E* keys, uint columns, uint stride = tile_stride<E>(Width)) {
  MLXTS_UNROLL for (uint c = 0; c < Width; c += 16) {
    if (c % 32 == 0 && c >= columns) break;
    const TileLeft<E, Rows, 16> x = columns_of(queries, c / 16);
    TileRight<E, 16, Keys> y;
    load_transposed(y, keys + c, stride);
    multiply_add(scores, x, y);
  }
}

// Keys that a row does not see get a score of −∞. The lane's first score is of `row` and `key`.
template <typename Tile, uint Rows, uint Keys>
METAL_FUNC void mask(thread TileSum<Rows, Keys>& scores, thread const Tile& tile, uint row, uint key) {
  MLXTS_UNROLL for (uint r = 0; r < Rows / 8; ++r) {
    const uint limit = tile.limit(row + 8 * r), seen = key < limit ? limit - key : 0;
    MLXTS_UNROLL for (uint i = 0; i < Keys / 4; ++i)
        scores.at(r, i / 2, i % 2) = 8 * (i / 2) + i % 2 < seen ? scores.at(r, i / 2, i % 2) : -INFINITY;
  }
}

// Weights and factors are powers of e with all digits of a float. For weights of 16 bits, powers of 2 of a scaled score
// have enough digits, and are what GPUs compute themselves.
template <typename E>
struct Power {
  static constant constexpr float kScale = metal::is_same_v<E, float> ? 1.0f : 1.44269504f;
  // The largest exponent: weights of f16 go up to 2¹⁴, so that fewer are below its normal numbers.
  static constant constexpr float kMost = metal::is_same_v<E, half> ? 14.0f : 0.0f;
  METAL_FUNC static float of(float x) {
    return metal::is_same_v<E, float> ? metal::precise::exp(x) : metal::precise::exp2(x);
  }
};

// The weights exp(scale · (score − maximum)) of a block, rounded to E. Earlier sums are scaled for a higher maximum.
template <typename E, uint Rows, uint Keys, uint Columns>
METAL_FUNC TileLeft<E, Rows, Keys> softmax(thread TileSum<Rows, Keys>& scores, thread AttentionRows<Rows, Columns>& rows,
                                           float scale) {
  scale *= Power<E>::kScale;
  float factors[Rows / 8];
  bool higher = false;
  MLXTS_UNROLL for (uint r = 0; r < Rows / 8; ++r) {
    float before = rows.maxima[r], highest = before;
    MLXTS_UNROLL for (uint i = 0; i < Keys / 4; ++i) highest = metal::max(highest, scores.at(r, i / 2, i % 2));
    rows.maxima[r] = row_max(highest);
    higher = higher || rows.maxima[r] > before;
    factors[r] = Power<E>::of((before - rows.maxima[r]) * scale);
    rows.denominators[r] *= factors[r];
    MLXTS_UNROLL for (uint i = 0; i < Keys / 4; ++i) {
      thread float& score = scores.at(r, i / 2, i % 2);
      score = Power<E>::of((score - rows.maxima[r]) * scale + Power<E>::kMost);
    }
  }
  if (metal::simd_any(higher)) scale_rows(rows.sums, factors);
  TileLeft<E, Rows, Keys> weights = as_left<E>(scores);
  float sums[Rows / 8] = {};
  add_row_sums(sums, weights);
  MLXTS_UNROLL for (uint r = 0; r < Rows / 8; ++r) rows.denominators[r] += sums[r];
  return weights;
}

// Adds `Width` columns of a tile of values, times the weights of its keys, to the columns of the sums from `first` on, 32 at
// a time. Those in f32 are added up for each tile on their own, so that sums over tens of thousands of keys keep their
// digits.
template <uint Width, typename E, uint Rows, uint Keys, uint Columns>
METAL_FUNC void add_values(thread AttentionRows<Rows, Columns>& rows, uint first,
                           thread const TileLeft<E, Rows, Keys>& weights, threadgroup const E* values, uint columns,
                           uint stride = tile_stride<E>(Width)) {
  MLXTS_UNROLL for (uint c = 0; c < Width; c += 32) {
    if (c >= columns) break;
    TileRight<E, Keys, 32> y;
    load(y, values + c, stride);
    if (!metal::is_same_v<E, float>) {
      multiply_add_columns(rows.sums, first + c, weights, y);
      continue;
    }
    TileSum<Rows, 32> block;
    fill(block, 0.0f);
    multiply_add(block, weights, y);
    MLXTS_UNROLL for (uint r = 0; r < Rows / 8; ++r) {
      MLXTS_UNROLL for (uint i = 0; i < 8; ++i)
          rows.sums.at(r, (first + c) / 8 + i / 2, i % 2) += block.at(r, i / 2, i % 2);
    }
  }
}

// Whether all values of a tile from key `first` on are finite.
template <uint Keys, uint Width, typename E>
METAL_FUNC bool all_finite(threadgroup const E* values, uint first, uint lane) {
  bool finite = true;
  for (uint key = first; key < Keys; ++key)
    MLXTS_UNROLL for (uint column = 0; column < Width; column += kSimd)
        finite &= metal::isfinite(float(values[key * tile_stride<E>(Width) + column + lane]));
  return metal::simd_all(finite);
}

// As add_values, where values that some rows do not see are not finite. Each key goes to the rows that see it: in a
// product the others would get 0 · NaN, which is NaN.
template <uint Width, typename Tile, typename E, uint Rows, uint Keys, uint Columns>
METAL_FUNC void add_seen_values(thread AttentionRows<Rows, Columns>& rows, uint first,
                                thread TileLeft<E, Rows, Keys>& x, threadgroup const E* values,
                                thread const Tile& tile, uint block, uint lane,
                                uint stride = tile_stride<E>(Width)) {
  const TileSum<Rows, Keys> weights = as_sum(x);
  for (uint key = 0; key < Keys; ++key) {
    threadgroup const E* own = values + key * stride + matrix_column(lane);
    MLXTS_UNROLL for (uint r = 0; r < Rows / 8; ++r) {
      float weight = 0.0f;
      MLXTS_UNROLL for (uint i = 0; i < Keys / 4; ++i)
          weight += 8 * (i / 2) + matrix_column(lane) + i % 2 == key ? weights.at(r, i / 2, i % 2) : 0.0f;
      weight = row_sum(weight);
      if (!tile.sees(rows.first + 8 * r + matrix_row(lane), block + key)) continue;
      MLXTS_UNROLL for (uint i = 0; i < Width / 4; ++i)
          rows.sums.at(r, first / 8 + i / 2, i % 2) += weight * float(own[8 * (i / 2) + i % 2]);
    }
  }
}

// A lane's part of a row of the result: its sums times `inverse`, as far as `columns` are left from its first one on.
template <typename O, uint Rows, uint Columns>
METAL_FUNC void store_row(thread const AttentionRows<Rows, Columns>& rows, uint r, float inverse, device O* to,
                          uint columns) {
  MLXTS_UNROLL for (uint i = 0; i < Columns / 4; ++i) {
    const uint at = 8 * (i / 2) + i % 2;
    if (at < columns) to[at] = O(rows.sums.at(r, i / 2, i % 2) * inverse);
  }
}

}  // namespace mlxts
