// metal_sdpa.h in a CUDA translation. Where queries and cache have one dtype of 16 bits, and the launch gives half as
// many threads, a simdgroup has twice as many rows: what it loads of keys and values meets two products each time, and
// the queries lie in threadgroup memory, to leave it registers.
#pragma once
#include "query_tiles_metal.h"
#include "row_softmax_cuda.h"

namespace mlxts {

constant constexpr uint kPairThreads = SDPA_PAIR_THREADS, kPairRows = SDPA_TILE_ROWS / (kPairThreads / kSimd);
constant constexpr uint kPairKeys = SDPA_PAIR_KEYS, kSlots = SDPA_PAIR_TILES;  // of a tile; tiles of keys and values
constant constexpr uint kWide = SDPA_TILE_COLUMNS;                             // columns of a tile of keys or values
typedef AttentionRows<kPairRows, kWide> PairRows;
typedef TileSum<kPairRows, kPairKeys> PairScores;
template <typename E>
using PairSoftmax = RowSoftmax<E, kPairRows, kWide, RowSums<E, kPairRows>>;

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

// Carries out of the exponents of eight numbers, in the bits of kCarries: where a number is not finite, whose exponent
// has all bits set.
constant constexpr uint kCarries = 0x80008000u;
template <typename E>
METAL_FUNC uint exponent_carries(uint4 eight) {
  constexpr uint kExponent = metal::is_same_v<E, half> ? 0x7c007c00u : 0x7f807f80u;
  constexpr uint kOne = metal::is_same_v<E, half> ? 0x04000400u : 0x00800080u;
  uint carries = 0;
  MLXTS_UNROLL for (uint n = 0; n < 4; ++n) carries |= (eight[n] & kExponent) + kOne;
  return carries;
}
// Whether a tile's values from key `first` on are finite.
template <typename E>
METAL_FUNC bool all_finite_pairs(threadgroup const E* values, uint first, uint lane) {
  constexpr uint kPieces = kWide / 8;
  uint carries = 0;
  for (uint at = first * kPieces + lane; at < kPairKeys * kPieces; at += kSimd)
    carries |= exponent_carries<E>(
        *(threadgroup const uint4*)(values + at / kPieces * tile_stride<E>(kWide) + at % kPieces * 8));
  return metal::simd_all((carries & kCarries) == 0);
}

template <typename E>
METAL_FUNC void store_pairs(thread const PairRows& rows, thread const PairSoftmax<E>& softmax,
                            thread const AttentionTile& tile, device E* out, uint column, uint lane) {
  const uint first = column + matrix_column(lane), columns = left(first, tile.queries.dim);
  MLXTS_UNROLL for (uint r = 0; r < kPairRows / 8; ++r) {
    const uint row = rows.first + 8 * r + matrix_row(lane);
    const float inverse = tile.end == 0 ? 0.0f : 1.0f / softmax.denominators.total(r);
    if (row < tile.rows) store_row(rows, r, inverse, out + tile.address(row) + first, columns);
  }
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
  PairSoftmax<E> softmax;
  start_rows(rows, softmax, simdgroup * kPairRows, tile.scale);
  queries += rows.first * stride;
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
    if (busy) weights = softmax.weights(scores, rows);
    threadgroup const E* own = tiles.next();
    if (busy && (all_seen || all_finite_pairs(own, left(block, seen_by_all), lane)))
      add_values(rows, weights, own, dim - column);
    else if (busy)
      add_seen_values<kWide>(rows, 0, weights, own, tile, block, lane);
  }
  store_pairs(rows, softmax, tile, out, column, lane);
}

// Tiles of rows of kWide columns, twice as many at a time.
constant constexpr uint kFullKeys = SDPA_FULL_KEYS, kFullStride = tile_stride<ushort>(kWide), kFullTile = kFullKeys * kFullStride;

// Keys and values of kWide columns go by tiles of kFullKeys rows; two of each are in turn on their way or multiplied.
template <typename E>
struct FullTiles {
  static constant constexpr uint kRows = kPairThreads / (kWide / 8);  // brought at once

  device const E *keys, *values;
  uint end, row, piece;  // the first row and the columns that a thread brings
  threadgroup E* tiles;

  // The tiles from key `first` on, on their way to element `at`.
  METAL_FUNC void start(uint first, uint at) const {
    const uint from = row * kWide + piece;
    threadgroup E* own = tiles + at + row * kFullStride + piece;
    device const E *k = keys + ulong(first) * kWide, *v = values + ulong(first) * kWide;
    if (first + kFullKeys <= end) {
      MLXTS_UNROLL for (uint i = 0; i < kFullKeys; i += kRows) {
        machine::copy_start<16>(own + i * kFullStride, k + from + i * kWide);
        machine::copy_start<16>(own + kFullTile + i * kFullStride, v + from + i * kWide);
      }
    } else if (first < end) {
      for (uint i = 0; i < kFullKeys; i += kRows) {
        const bool exists = first + row + i < end;
        machine::copy_start<16>(own + i * kFullStride, exists ? k + from + i * kWide : keys, exists ? 16 : 0);
        machine::copy_start<16>(own + kFullTile + i * kFullStride, exists ? v + from + i * kWide : keys,
                                exists ? 16 : 0);
      }
    }
    machine::copies_end();
  }
};

// Adds the products of queries and Keys keys, both from the lane's own row on. Loads run two products ahead.
template <typename E, uint Keys>
METAL_FUNC void add_full_scores(thread TileSum<kPairRows, Keys>& scores, threadgroup const E* queries,
                                threadgroup const E* keys) {
  constexpr uint kParts = Keys / 16, kAll = kParts * kWide / 16;
  TileLeft<E, kPairRows, 16> x[2];
  TileRight<E, 16, 16> y[3];
  load_own(x[0], queries, kFullStride);
  MLXTS_UNROLL for (uint i = 0; i < 2; ++i) load_own_transposed(y[i], keys + i * 16 * kFullStride, kFullStride);
  MLXTS_UNROLL for (uint i = 0; i < kAll; ++i) {
    const uint k = i / kParts, ahead = i + 2;
    if (ahead < kAll)
      load_own_transposed(y[ahead % 3], keys + ahead % kParts * 16 * kFullStride + ahead / kParts * 16, kFullStride);
    if (i % kParts == kParts / 2 - 1 && k < kWide / 16 - 1) load_own(x[(k + 1) % 2], queries + (k + 1) * 16, kFullStride);
    multiply_add_columns(scores, i % kParts * 16, x[k % 2], y[i % 3]);
  }
}
// Adds the products of weights and Keys values, from the lane's own row on.
template <typename E, uint Keys>
METAL_FUNC void add_full_values(thread PairRows& rows, thread const TileLeft<E, kPairRows, Keys>& weights,
                                threadgroup const E* values) {
  constexpr uint kParts = kWide / 16, kAll = kParts * Keys / 16;
  TileRight<E, 16, 16> y[3];
  MLXTS_UNROLL for (uint i = 0; i < 2; ++i) load_own(y[i], values + i * 16, kFullStride);
  MLXTS_UNROLL for (uint i = 0; i < kAll; ++i) {
    const uint ahead = i + 2;
    if (ahead < kAll) load_own(y[ahead % 3], values + ahead / kParts * 16 * kFullStride + ahead % kParts * 16, kFullStride);
    multiply_add_columns(rows.sums, i % kParts * 16, columns_of(weights, i / kParts), y[i % 3]);
  }
}

METAL_FUNC bool full_room(SdpaScratch scratch) {
  return scratch.queries - scratch.tiles >= 4 * kFullTile * sizeof(ushort);
}

// Where all has kWide columns. Tiles that all rows see are multiplied whole, with nothing else to keep in registers.
template <typename E>
METAL_FUNC void attend_full(device const E* q, device const E* keys, device const E* values, device E* out,
                            thread const AttentionTile& tile, SdpaScratch scratch, uint index, uint lane,
                            uint simdgroup) {
  constexpr uint kPieces = kWide / 8;
  threadgroup E *queries = (threadgroup E*)scratch.queries, *tiles = (threadgroup E*)scratch.tiles;
  start_queries(q, tile, queries, kFullStride, index, true);
  const FullTiles<E> all = {keys, values, tile.end, index / kPieces, index % kPieces * 8, tiles};
  all.start(0, 0);
  PairRows rows;
  PairSoftmax<E> softmax;
  start_rows(rows, softmax, simdgroup * kPairRows, tile.scale);
  threadgroup const E* own_queries = own_row(queries + rows.first * kFullStride, kFullStride);
  threadgroup const E* own_keys = own_row_transposed(tiles, kFullStride);
  threadgroup const E* own_values = own_row(tiles + kFullTile, kFullStride);
  uint own = 0, first = 0;
  for (const uint whole = tile.limit(0); first + kFullKeys <= whole; first += kFullKeys, own = 2 * kFullTile - own) {
    machine::copies_wait<0>();
    threadgroup_barrier(metal::mem_flags::mem_threadgroup);
    all.start(first + kFullKeys, 2 * kFullTile - own);
    TileSum<kPairRows, kFullKeys> scores;
    fill(scores, 0.0f);
    add_full_scores(scores, own_queries, own_keys + own);
    add_full_values(rows, softmax.weights(scores, rows), own_values + own);
  }
  // Tiles that some rows see in part.
  const uint last = metal::min(rows.first + kPairRows, tile.rows) - 1;
  const uint seen_by_all = tile.limit(rows.first), seen_by_some = rows.first < tile.rows ? tile.limit(last) : 0;
  for (; first < tile.end; first += kFullKeys, own = 2 * kFullTile - own) {
    machine::copies_wait<0>();
    threadgroup_barrier(metal::mem_flags::mem_threadgroup);
    all.start(first + kFullKeys, 2 * kFullTile - own);
    for (uint step = 0; step < kFullKeys; step += kPairKeys) {
      const uint block = first + step, at = own + step * kFullStride;
      if (block >= seen_by_some) break;
      PairScores scores;
      fill(scores, 0.0f);
      add_full_scores(scores, own_queries, own_keys + at);
      mask(scores, tile, rows.first + matrix_row(lane), block + matrix_column(lane));
      TileLeft<E, kPairRows, kPairKeys> weights = softmax.weights(scores, rows);
      threadgroup const E* values_at = tiles + kFullTile + at;
      if (all_finite_pairs(values_at, left(block, seen_by_all), lane))
        add_full_values(rows, weights, own_values + at);
      else
        add_seen_values<kWide>(rows, 0, weights, values_at, tile, block, lane);
    }
  }
  store_pairs(rows, softmax, tile, out, 0, lane);
}

template <typename X, typename C>
METAL_FUNC void attention(device const X* q, device const C* keys, device const C* values, device X* out,
                          thread const AttentionTile& tile, uint column, SdpaScratch scratch, uint index, uint lane,
                          uint simdgroup) {
  if constexpr (metal::is_same_v<X, C> && sizeof(X) == 2) {
    if (machine::threads().x == kPairThreads) {
      const bool aligned = ((ulong(q) | ulong(keys) | ulong(values)) & 15) == 0;
      if (full_room(scratch) && aligned)
        attend_full(q, keys, values, out, tile, scratch, index, lane, simdgroup);
      else
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
