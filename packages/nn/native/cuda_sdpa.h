// metal_sdpa.h in a CUDA translation. Where queries and cache have one dtype of 16 bits, and the launch gives half as
// many threads, a simdgroup has twice as many rows: what it loads of keys and values meets two products each time, and
// the queries lie in threadgroup memory, to leave it registers.
#pragma once
#include "query_tiles_metal.h"

namespace mlxts {

constant constexpr uint kPairThreads = SDPA_PAIR_THREADS, kPairRows = SDPA_TILE_ROWS / (kPairThreads / kSimd);
constant constexpr uint kPairKeys = SDPA_PAIR_KEYS, kSlots = SDPA_PAIR_TILES;  // of a tile; tiles of keys and values
constant constexpr uint kWide = SDPA_TILE_COLUMNS;                             // columns of a tile of keys or values
typedef AttentionRows<kPairRows, kWide> PairRows;
typedef TileSum<kPairRows, kPairKeys> PairScores;

// The tiles in the order of TileQueue, kSlots − 1 of them on their way.
template <typename E>
struct PairQueue {
  static constant constexpr uint kStride = tile_stride<E>(kWide), kPieces = kWide / 8;
  static constant constexpr uint kStep = kPairThreads / kPieces, kOwn = kPairKeys / kStep;
  static_assert(kPairThreads % kPieces == 0 && kPairKeys % kStep == 0, "every thread brings as much");

  device const E *keys, *values;
  uint dim, end, first;  // `first` of the columns of the values
  threadgroup E* slots;
  uint row, piece;  // of what a thread brings
  bool aligned;
  // The tile that starts next, and where; where the one lies that is multiplied next.
  uint block = 0, column = 0, into = 0, from = 0;
  bool of_values = false;

  METAL_FUNC void start() {
    if (block < end) {
      device const E* own = (of_values ? values : keys) + ulong(block + row) * dim + column + piece;
      threadgroup E* to = slots + (into * kPairKeys + row) * kStride + piece;
      const uint rows = column + piece < dim && block + row < end ? end - block - row : 0;
      if (aligned) {
        MLXTS_UNROLL for (uint i = 0; i < kOwn; ++i) {
          const bool exists = i * kStep < rows;
          machine::copy_start<16>(to + i * kStep * kStride, exists ? own + i * kStep * dim : keys, exists ? 16 : 0);
        }
      } else {
        for (uint i = 0; i < kOwn; ++i) {
          for (uint n = 0; n < 8; ++n) {
            const bool exists = i * kStep < rows && column + piece + n < dim;
            to[i * kStep * kStride + n] = exists ? own[i * kStep * dim + n] : E(0.0f);
          }
        }
      }
      column += kWide;
      if (of_values || column >= dim) {
        if (of_values) block += kPairKeys;
        of_values = !of_values;
        column = of_values ? first : 0;
      }
    }
    machine::copies_end();
    into = into + 1 == kSlots ? 0 : into + 1;
  }
  // The next tile, once all have it; the one after those on their way starts where the one before was.
  METAL_FUNC threadgroup const E* next() {
    machine::copies_wait<kSlots - 2>();
    threadgroup_barrier(metal::mem_flags::mem_threadgroup);
    start();
    threadgroup const E* own = slots + from * kPairKeys * kStride;
    from = from + 1 == kSlots ? 0 : from + 1;
    return own;
  }
};

// All queries of a threadgroup on their way into rows `stride` apart, columns up to a multiple of kWide.
template <typename E>
METAL_FUNC void start_queries(device const E* q, thread const AttentionTile& tile, threadgroup E* to, uint stride,
                              uint index, bool aligned) {
  const uint dim = tile.queries.dim, pieces = (stride - 8) / 8;
  for (uint at = index; at < SDPA_TILE_ROWS * pieces; at += kPairThreads) {
    const uint row = at / pieces, column = at % pieces * 8, count = column < dim ? metal::min(dim - column, 8u) : 0;
    device const E* from = q + tile.address(metal::min(row, tile.rows - 1)) + (count > 0 ? column : 0);
    threadgroup E* own = to + row * stride + column;
    if (aligned)
      machine::copy_start<16>(own, from, count * sizeof(E));
    else
      for (uint n = 0; n < 8; ++n) own[n] = n < count ? from[n] : E(0.0f);
  }
}

// Adds the products of queries and of `columns` columns of a tile of keys. Columns beyond them are zeros, and a
// question for each step would keep its loads from starting before the products of the one before: half of a tile is
// left out.
template <typename E>
METAL_FUNC void add_scores(thread PairScores& scores, threadgroup const E* queries, uint stride,
                           threadgroup const E* keys, uint columns) {
  MLXTS_UNROLL for (uint c = 0; c < kWide; c += 16) {
    if (c == kWide / 2 && c >= columns) break;
    TileLeft<E, kPairRows, 16> x;
    TileRight<E, 16, kPairKeys> y;
    load(x, queries + c, stride);
    load_transposed(y, keys + c, tile_stride<E>(kWide));
    multiply_add(scores, x, y);
  }
}

// As softmax, with powers of 2 as the GPU has them; denominators are sums of the rounded weights.
template <typename E>
METAL_FUNC TileLeft<E, kPairRows, kPairKeys> pair_softmax(thread PairScores& scores, thread PairRows& rows,
                                                          thread RowSums<E, kPairRows>& denominators, float scale) {
  constexpr float kMost = Power<E>::kMost;
  float factors[kPairRows / 8];
  bool higher = false;
  MLXTS_UNROLL for (uint r = 0; r < kPairRows / 8; ++r) {
    const float before = rows.maxima[r];
    float highest = before;
    MLXTS_UNROLL for (uint i = 0; i < kPairKeys / 4; ++i) highest = metal::max(highest, scores.at(r, i / 2, i % 2));
    rows.maxima[r] = highest = row_max(highest);
    higher = higher || highest > before;
    factors[r] = machine::exp2_fast((before - highest) * scale);
    MLXTS_UNROLL for (uint i = 0; i < kPairKeys / 4; ++i) {
      thread float& score = scores.at(r, i / 2, i % 2);
      const float power = (score - highest) * scale;
      score = machine::exp2_fast(kMost == 0.0f ? power : power + kMost);
    }
  }
  if (metal::simd_any(higher)) {
    scale_rows(rows.sums, factors);
    MLXTS_UNROLL for (uint r = 0; r < kPairRows / 8; ++r) {
      MLXTS_UNROLL for (uint e = 0; e < 2; ++e) denominators.blocks[r / 2][r % 2 * 2 + e] *= factors[r];
    }
  }
  TileLeft<E, kPairRows, kPairKeys> weights = as_left<E>(scores);
  add_row_sums(denominators, weights);
  return weights;
}

// Adds the products of weights and a tile of values.
template <typename E>
METAL_FUNC void add_values(thread PairRows& rows, thread const TileLeft<E, kPairRows, kPairKeys>& weights,
                           threadgroup const E* values, uint columns) {
  constexpr uint kStride = tile_stride<E>(kWide);
  MLXTS_UNROLL for (uint c = 0; c < kWide; c += 16) {
    if (c == kWide / 2 && c >= columns) break;
    TileRight<E, kPairKeys, 16> y;
    load(y, values + c, kStride);
    multiply_add_columns(rows.sums, c, weights, y);
  }
}

// Whether a tile's values from key `first` on are finite: no exponent has all bits set.
template <typename E>
METAL_FUNC bool all_finite_pairs(threadgroup const E* values, uint first, uint lane) {
  constexpr uint kExponent = metal::is_same_v<E, half> ? 0x7c007c00u : 0x7f807f80u;
  constexpr uint kOne = metal::is_same_v<E, half> ? 0x04000400u : 0x00800080u;
  uint carry = 0;
  for (uint at = first * (kWide / 8) + lane; at < kPairKeys * (kWide / 8); at += kSimd) {
    const uint4 eight =
        *(threadgroup const uint4*)(values + at / (kWide / 8) * tile_stride<E>(kWide) + at % (kWide / 8) * 8);
    MLXTS_UNROLL for (uint n = 0; n < 4; ++n) carry |= (eight[n] & kExponent) + kOne;
  }
  return metal::simd_all((carry & 0x80008000u) == 0);
}

template <typename E>
METAL_FUNC void attend_pairs(device const E* q, device const E* keys, device const E* values, device E* out,
                             thread const AttentionTile& tile, uint column, SdpaScratch scratch, uint index, uint lane,
                             uint simdgroup) {
  const uint dim = tile.queries.dim, stride = tile_stride<E>((dim + kWide - 1) / kWide * kWide);
  const bool whole = dim % 8 == 0;
  constexpr uint kPieces = PairQueue<E>::kPieces;
  const bool aligned = whole && ((ulong(keys) | ulong(values)) & 15) == 0;
  PairQueue<E> tiles = {keys, values, dim, tile.end, column, (threadgroup E*)scratch.tiles};
  tiles.row = index / kPieces, tiles.piece = index % kPieces * 8, tiles.aligned = aligned;
  threadgroup E* queries = (threadgroup E*)scratch.queries;
  start_queries(q, tile, queries, stride, index, whole && (ulong(q) & 15) == 0);
  MLXTS_UNROLL for (uint i = 0; i + 1 < kSlots; ++i) tiles.start();
  PairRows rows;
  rows.first = simdgroup * kPairRows;
  clear(rows);
  RowSums<E, kPairRows> denominators;
  clear(denominators);
  queries += rows.first * stride;
  const float scale = tile.scale * Power<E>::kScale;
  const uint last = metal::min(rows.first + kPairRows, tile.rows) - 1;
  const uint seen_by_all = tile.limit(rows.first), seen_by_some = rows.first < tile.rows ? tile.limit(last) : 0;
  for (uint block = 0; block < tile.end; block += kPairKeys) {
    const bool busy = block < seen_by_some, all_seen = block + kPairKeys <= seen_by_all;
    PairScores scores;
    fill(scores, 0.0f);
    for (uint d = 0; d < dim; d += kWide) {
      threadgroup const E* own = tiles.next();
      if (busy) add_scores(scores, queries + d, stride, own, dim - d);
    }
    TileLeft<E, kPairRows, kPairKeys> weights;
    if (busy && !all_seen) mask(scores, tile, rows.first + matrix_row(lane), block + matrix_column(lane));
    if (busy) weights = pair_softmax(scores, rows, denominators, scale);
    threadgroup const E* own = tiles.next();
    if (busy && (all_seen || all_finite_pairs(own, left(block, seen_by_all), lane)))
      add_values(rows, weights, own, dim - column);
    else if (busy)
      add_seen_values<kWide>(rows, 0, weights, own, tile, block, lane);
  }
  const uint first = column + matrix_column(lane);
  MLXTS_UNROLL for (uint r = 0; r < kPairRows / 8; ++r) {
    const uint row = rows.first + 8 * r + matrix_row(lane);
    const float inverse = tile.end == 0 ? 0.0f : 1.0f / denominators.total(r);
    if (row < tile.rows) store_row(rows, r, inverse, out + tile.address(row) + first, left(first, dim));
  }
}

template <typename X, typename C>
METAL_FUNC void attention(device const X* q, device const C* keys, device const C* values, device X* out,
                          thread const AttentionTile& tile, uint column, SdpaScratch scratch, uint index, uint lane,
                          uint simdgroup) {
  if constexpr (metal::is_same_v<X, C> && sizeof(X) == 2) {
    if (machine::threads().x == kPairThreads) {
      attend_pairs(q, keys, values, out, tile, column, scratch, index, lane, simdgroup);
      return;
    }
  }
  attend_tile(q, keys, values, out, tile, column, scratch, index, lane, simdgroup);
}

// The longest ones of all heads first.
METAL_FUNC uint2 place_of(uint3 group, uint3 groups) {
  const uint number = group.y * groups.x + group.x;
  return uint2(number / groups.y, number % groups.y);
}

}  // namespace mlxts
