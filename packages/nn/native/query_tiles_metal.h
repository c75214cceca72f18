// Many queries: a threadgroup has some of the query rows that share a key/value head, all keys that they see, and
// kColumns columns of the output. Each simdgroup has kRows of the rows, whose scores, weights and sums stay in its
// registers. Keys and values go through threadgroup memory, for all simdgroups. Sums and factors are floats.
#pragma once
#include "metal_attention.h"
#include "sdpa.params.h"
#include "sdpa_tile.h"

namespace mlxts {

constant constexpr uint kThreads = SDPA_THREADS, kRows = SDPA_TILE_ROWS / (kThreads / kSimd);
constant constexpr uint kKeys = SDPA_TILE_KEYS, kColumns = SDPA_TILE_COLUMNS;

// Columns of a tile of keys or values.
template <typename E>
constexpr uint tile_columns() {
  return SDPA_TILE_ROW_BYTES / sizeof(E);
}

// The tiles of keys and values in the order in which they are multiplied: of each block of keys all columns of the
// keys, then this threadgroup's columns of the values. While a tile is multiplied, the next one is on its way.
template <typename C, typename E>
struct TileQueue {
  device const C *keys, *values;
  uint dim, end, first, index;  // `first` of the columns of the values
  threadgroup E* slots;         // two tiles
  uint slot = 0, block = 0, column = 0;
  bool of_values = false;
  TileCopy<C, E, kKeys, tile_columns<E>(), kThreads> copy = {};

  METAL_FUNC threadgroup E* tile() const thread { return slots + slot * kKeys * tile_stride<E>(tile_columns<E>()); }
  METAL_FUNC void start() thread {
    device const C* from = (of_values ? values : keys) + ulong(block) * dim + column;
    copy.start(tile(), from, dim, left(block, end), dim - column, index);
    column += tile_columns<E>();
    if (column < (of_values ? metal::min(first + kColumns, dim) : dim)) return;
    if (of_values) block += kKeys;
    of_values = !of_values;
    column = of_values ? first : 0;
  }
  // The tile that was on its way, once all have it; the next one starts where the one before was.
  METAL_FUNC threadgroup const E* next() thread {
    threadgroup E* own = tile();
    copy.finish(own, index);
    threadgroup_barrier(metal::mem_flags::mem_threadgroup);
    slot ^= 1;
    start();
    return own;
  }
};

typedef AttentionRows<kRows, kColumns> OwnRows;

// A simdgroup's rows of q from `row` on.
template <typename X>
struct QueryColumns {
  device const X* q;
  thread const AttentionTile& tile;
  uint row;

  METAL_FUNC device const X* operator()(uint r) const thread {
    return q + tile.address(metal::min(row + r, tile.rows - 1));
  }
};

// All keys of a tile of queries, with the columns of the values from `column` on.
template <typename X, typename C, typename E>
METAL_FUNC void attend(device const X* q, thread const AttentionTile& tile, thread TileQueue<C, E>& tiles, uint column,
                       thread OwnRows& rows, uint lane) {
  constexpr uint kWidth = tile_columns<E>();
  const uint dim = tile.queries.dim, last = metal::min(rows.first + kRows, tile.rows) - 1;
  const uint seen_by_all = tile.limit(rows.first), seen_by_some = rows.first < tile.rows ? tile.limit(last) : 0;
  TileLeft<E, kRows, kWidth> queries;
  for (uint block = 0; block < tile.end; block += kKeys) {
    const bool busy = block < seen_by_some, all_seen = block + kKeys <= seen_by_all;
    TileSum<kRows, kKeys> scores;
    fill(scores, 0.0f);
    for (uint d = 0; d < dim; d += kWidth) {
      threadgroup const E* keys = tiles.next();
      // One tile's columns of the queries stay for all blocks.
      if (busy && (block == 0 || dim > kWidth))
        queries = load_queries<E, kRows, kWidth>(QueryColumns<X>{q + d, tile, rows.first}, dim - d, lane);
      if (busy) add_scores(scores, queries, keys, dim - d);
    }
    TileLeft<E, kRows, kKeys> weights;
    if (busy && !all_seen) mask(scores, tile, rows.first + matrix_row(lane), block + matrix_column(lane));
    if (busy) weights = softmax<E>(scores, rows, tile.scale);
    MLXTS_UNROLL for (uint c = 0; c < kColumns; c += kWidth) {
      if (column + c >= dim) continue;
      threadgroup const E* values = tiles.next();
      if (busy && (all_seen || all_finite<kKeys, kWidth>(values, left(block, seen_by_all), lane)))
        add_values<kWidth>(rows, c, weights, values, dim - column - c);
      else if (busy)
        add_seen_values<kWidth>(rows, c, weights, values, tile, block, lane);
    }
  }
}

template <typename X>
METAL_FUNC void store(thread OwnRows& rows, thread const AttentionTile& tile, device X* out, uint column, uint lane) {
  const uint first = column + matrix_column(lane);
  MLXTS_UNROLL for (uint r = 0; r < kRows / 8; ++r) {
    const uint row = rows.first + 8 * r + matrix_row(lane);
    const float inverse = tile.end == 0 ? 0.0f : 1.0f / row_sum(rows.denominators[r]);
    if (row < tile.rows) store_row(rows, r, inverse, out + tile.address(row) + first, left(first, tile.queries.dim));
  }
}

// The outputs of a tile of queries, columns from `column` on, from the keys and values of its head.
template <typename X, typename C>
METAL_FUNC void attend_tile(device const X* q, device const C* keys, device const C* values, device X* out,
                            thread const AttentionTile& tile, uint column, SdpaScratch scratch, uint index, uint lane,
                            uint simdgroup) {
  using E = metal::conditional_t<metal::is_same_v<X, C>, X, float>;
  TileQueue<C, E> tiles = {keys, values, tile.queries.dim, tile.end, column, index, (threadgroup E*)scratch.tiles};
  tiles.start();
  OwnRows rows;
  rows.first = simdgroup * kRows;
  clear(rows);
  attend(q, tile, tiles, column, rows, lane);
  store(rows, tile, out, column, lane);
}

}  // namespace mlxts
