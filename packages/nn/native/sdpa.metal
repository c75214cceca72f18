// Many queries: a threadgroup has some of the query rows that share a key/value head, all keys that they see, and
// kColumns columns of the output. Each simdgroup has kRows of the rows, whose scores, weights and sums stay in its
// registers. Keys and values go through threadgroup memory, for all simdgroups. Sums and factors are floats.
#include "metal_tile.h"
#include "sdpa.params.h"
#include "sdpa_tile.h"

using namespace metal;
using namespace mlxts;

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
    if (column < (of_values ? min(first + kColumns, dim) : dim)) return;
    if (of_values) block += kKeys;
    of_values = !of_values;
    column = of_values ? first : 0;
  }
  // The tile that was on its way, once all have it; the next one starts where the one before was.
  METAL_FUNC threadgroup const E* next() thread {
    threadgroup E* own = tile();
    copy.finish(own, index);
    threadgroup_barrier(mem_flags::mem_threadgroup);
    slot ^= 1;
    start();
    return own;
  }
};

// The query rows of a simdgroup, of which a lane has every eighth. A denominator is the sum over the lane's keys.
struct OwnRows {
  uint first;
  float maxima[kRows / 8], denominators[kRows / 8];
  TileSum<kRows, kColumns> sums;
};

METAL_FUNC OwnRows own_rows(uint first) {
  OwnRows rows;
  rows.first = first;
  MLXTS_UNROLL for (uint r = 0; r < kRows / 8; ++r) {
    rows.maxima[r] = -FLT_MAX;  // not −∞, from which a score of −∞ has no difference
    rows.denominators[r] = 0.0f;
  }
  fill(rows.sums, 0.0f);
  return rows;
}

// A simdgroup's rows of q from `row` on, in the columns from `column` on; zeros beyond them.
template <typename E, typename X>
METAL_FUNC TileLeft<E, kRows, tile_columns<E>()> load_queries(device const X* q, thread const AttentionTile& tile,
                                                              uint row, uint column, uint lane) {
  TileSum<kRows, tile_columns<E>()> x;
  const uint dim = tile.queries.dim, columns = left(column + matrix_column(lane), dim);
  MLXTS_UNROLL for (uint r = 0; r < kRows / 8; ++r) {
    const uint own = min(row + 8 * r + matrix_row(lane), tile.rows - 1);
    device const X* from = q + tile.address(own) + min(column + matrix_column(lane), dim - 1);
    MLXTS_UNROLL for (uint i = 0; i < tile_columns<E>() / 4; ++i) {
      const uint at = 8 * (i / 2) + i % 2;
      const float element = float(from[at < columns ? at : 0]);  // all loads at once, none waits for a condition
      x.at(r, i / 2, i % 2) = at < columns ? element : 0.0f;
    }
  }
  return as_left<E>(x);
}

// Adds the products of queries and the `columns` of a tile of keys, 32 at a time.
template <typename E>
METAL_FUNC void add_scores(thread TileSum<kRows, kKeys>& scores,
                           thread const TileLeft<E, kRows, tile_columns<E>()>& queries, threadgroup const E* keys,
                           uint columns) {
  MLXTS_UNROLL for (uint c = 0; c < tile_columns<E>(); c += 16) {
    if (c % 32 == 0 && c >= columns) break;
    const TileLeft<E, kRows, 16> x = columns_of(queries, c / 16);
    TileRight<E, 16, kKeys> y;
    load_transposed(y, keys + c, tile_stride<E>(tile_columns<E>()));
    multiply_add(scores, x, y);
  }
}

// Keys that a row does not see get a score of −∞. The lane's first score is of `row` and `key`.
METAL_FUNC void mask(thread TileSum<kRows, kKeys>& scores, thread const AttentionTile& tile, uint row, uint key) {
  MLXTS_UNROLL for (uint r = 0; r < kRows / 8; ++r) {
    const uint seen = left(key, tile.limit(row + 8 * r));
    MLXTS_UNROLL for (uint i = 0; i < kKeys / 4; ++i)
        scores.at(r, i / 2, i % 2) = 8 * (i / 2) + i % 2 < seen ? scores.at(r, i / 2, i % 2) : -INFINITY;
  }
}

// Weights and factors are powers of e with all digits of a float. For weights of 16 bits, powers of 2 of a scaled score
// have enough digits, and are what GPUs compute themselves.
template <typename E>
struct Power {
  static constant constexpr float kScale = is_same_v<E, float> ? 1.0f : 1.44269504f;
  // The largest exponent: weights of f16 go up to 2¹⁴, so that fewer are below its normal numbers.
  static constant constexpr float kMost = is_same_v<E, half> ? 14.0f : 0.0f;
  METAL_FUNC static float of(float x) { return is_same_v<E, float> ? precise::exp(x) : precise::exp2(x); }
};

// The weights exp(scale · (score − maximum)) of a block, rounded to E. Earlier sums are scaled for a higher maximum.
template <typename E>
METAL_FUNC TileLeft<E, kRows, kKeys> softmax(thread TileSum<kRows, kKeys>& scores, thread OwnRows& rows, float scale) {
  scale *= Power<E>::kScale;
  float factors[kRows / 8];
  bool higher = false;
  MLXTS_UNROLL for (uint r = 0; r < kRows / 8; ++r) {
    float before = rows.maxima[r], highest = before;
    MLXTS_UNROLL for (uint i = 0; i < kKeys / 4; ++i) highest = max(highest, scores.at(r, i / 2, i % 2));
    rows.maxima[r] = row_max(highest);
    higher = higher || rows.maxima[r] > before;
    factors[r] = Power<E>::of((before - rows.maxima[r]) * scale);
    rows.denominators[r] *= factors[r];
    MLXTS_UNROLL for (uint i = 0; i < kKeys / 4; ++i) {
      thread float& score = scores.at(r, i / 2, i % 2);
      score = Power<E>::of((score - rows.maxima[r]) * scale + Power<E>::kMost);
    }
  }
  if (simd_any(higher)) scale_rows(rows.sums, factors);
  TileLeft<E, kRows, kKeys> weights = as_left<E>(scores);
  add_row_sums(rows.denominators, weights);
  return weights;
}

// Adds a tile of values, times the weights of its keys, to the columns of the sums from `first` on, 32 at a time.
template <typename E>
METAL_FUNC void add_values(thread OwnRows& rows, uint first, thread const TileLeft<E, kRows, kKeys>& weights,
                           threadgroup const E* values, uint columns) {
  MLXTS_UNROLL for (uint c = 0; c < tile_columns<E>(); c += 32) {
    if (c >= columns) break;
    TileRight<E, kKeys, 32> y;
    load(y, values + c, tile_stride<E>(tile_columns<E>()));
    multiply_add_columns(rows.sums, first + c, weights, y);
  }
}

// Whether all values of a tile from key `first` on are finite.
template <typename E>
METAL_FUNC bool all_finite(threadgroup const E* values, uint first, uint lane) {
  bool finite = true;
  for (uint key = first; key < kKeys; ++key)
    MLXTS_UNROLL for (uint column = 0; column < tile_columns<E>(); column += kSimd)
        finite &= isfinite(float(values[key * tile_stride<E>(tile_columns<E>()) + column + lane]));
  return simd_all(finite);
}

// As add_values, where values that some rows do not see are not finite. Each key goes to the rows that see it: in a
// product the others would get 0 · NaN, which is NaN.
template <typename E>
METAL_FUNC void add_seen_values(thread OwnRows& rows, uint first, thread TileLeft<E, kRows, kKeys>& x,
                                threadgroup const E* values, thread const AttentionTile& tile, uint block, uint lane) {
  const TileSum<kRows, kKeys> weights = as_sum(x);
  for (uint key = 0; key < kKeys; ++key) {
    threadgroup const E* own = values + key * tile_stride<E>(tile_columns<E>()) + matrix_column(lane);
    MLXTS_UNROLL for (uint r = 0; r < kRows / 8; ++r) {
      float weight = 0.0f;
      MLXTS_UNROLL for (uint i = 0; i < kKeys / 4; ++i)
          weight += 8 * (i / 2) + matrix_column(lane) + i % 2 == key ? weights.at(r, i / 2, i % 2) : 0.0f;
      weight = row_sum(weight);
      if (block + key >= tile.limit(rows.first + 8 * r + matrix_row(lane))) continue;
      MLXTS_UNROLL for (uint i = 0; i < tile_columns<E>() / 4; ++i)
          rows.sums.at(r, first / 8 + i / 2, i % 2) += weight * float(own[8 * (i / 2) + i % 2]);
    }
  }
}

// All keys of a tile of queries, with the columns of the values from `column` on.
template <typename X, typename C, typename E>
METAL_FUNC void attend(device const X* q, thread const AttentionTile& tile, thread TileQueue<C, E>& tiles, uint column,
                       thread OwnRows& rows, uint lane) {
  constexpr uint kWidth = tile_columns<E>();
  const uint dim = tile.queries.dim, last = min(rows.first + kRows, tile.rows) - 1;
  const uint seen_by_all = tile.limit(rows.first), seen_by_some = rows.first < tile.rows ? tile.limit(last) : 0;
  TileLeft<E, kRows, kWidth> queries;
  for (uint block = 0; block < tile.end; block += kKeys) {
    const bool busy = block < seen_by_some, all_seen = block + kKeys <= seen_by_all;
    TileSum<kRows, kKeys> scores;
    fill(scores, 0.0f);
    for (uint d = 0; d < dim; d += kWidth) {
      threadgroup const E* keys = tiles.next();
      // One tile's columns of the queries stay for all blocks.
      if (busy && (block == 0 || dim > kWidth)) queries = load_queries<E>(q, tile, rows.first, d, lane);
      if (busy) add_scores(scores, queries, keys, dim - d);
    }
    TileLeft<E, kRows, kKeys> weights;
    if (busy && !all_seen) mask(scores, tile, rows.first + matrix_row(lane), block + matrix_column(lane));
    if (busy) weights = softmax<E>(scores, rows, tile.scale);
    MLXTS_UNROLL for (uint c = 0; c < kColumns; c += kWidth) {
      if (column + c >= dim) continue;
      threadgroup const E* values = tiles.next();
      if (busy && (all_seen || all_finite(values, left(block, seen_by_all), lane)))
        add_values(rows, c, weights, values, dim - column - c);
      else if (busy)
        add_seen_values(rows, c, weights, values, tile, block, lane);
    }
  }
}

template <typename X>
METAL_FUNC void store(thread OwnRows& rows, thread const AttentionTile& tile, device X* out, uint column, uint lane) {
  const uint first = column + matrix_column(lane), columns = left(first, tile.queries.dim);
  MLXTS_UNROLL for (uint r = 0; r < kRows / 8; ++r) {
    const uint row = rows.first + 8 * r + matrix_row(lane);
    const float inverse = tile.end == 0 ? 0.0f : 1.0f / row_sum(rows.denominators[r]);
    if (row >= tile.rows) continue;
    device X* to = out + tile.address(row) + first;
    MLXTS_UNROLL for (uint i = 0; i < kColumns / 4; ++i) {
      const uint at = 8 * (i / 2) + i % 2;
      if (at < columns) to[at] = X(rows.sums.at(r, i / 2, i % 2) * inverse);
    }
  }
}

template <typename X, typename C>
kernel void sdpa(device const X* q [[buffer(SDPA_Q)]], device const C* k_cache [[buffer(SDPA_K_CACHE)]],
                 device const C* v_cache [[buffer(SDPA_V_CACHE)]], device const Index* lengths [[buffer(SDPA_LENGTHS)]],
                 device X* out [[buffer(SDPA_OUT)]], constant SdpaParams& p [[buffer(SDPA_PARAMS)]],
                 device MlxtsFault* fault [[buffer(SDPA_FAULT)]], threadgroup uchar* memory [[threadgroup(0)]],
                 uint3 group [[threadgroup_position_in_grid]], uint3 groups [[threadgroups_per_grid]],
                 uint index [[thread_index_in_threadgroup]], uint lane [[thread_index_in_simdgroup]],
                 uint simdgroup [[simdgroup_index_in_threadgroup]]) {
  using E = conditional_t<is_same_v<X, C>, X, float>;
  const SdpaScratch scratch = scratch_of(memory, p);
  const CheckedLength checked = checked_length(lengths, group.z, p, FaultSearch{fault, lane},
                                               {SDPA_FAULT_LENGTH, SDPA_FAULT_NEW_ROWS}, scratch.length, index);
  if (!checked.right) return;
  // Last rows first: when causal they see most and take longest.
  const uint place = groups.x - 1 - group.x, parts = (p.dim + kColumns - 1) / kColumns;
  const uint first = place / parts * SDPA_TILE_ROWS, column = place % parts * kColumns;
  const AttentionTile tile = attention_tile(query_rows(p, group.z, group.y, checked.length), first, SDPA_TILE_ROWS, 0,
                                            checked.length, max(p.scale, FLT_MIN));  // 0 · −∞ is no score
  const ulong cache = cache_row(group.z, group.y, p.kvHeads, p.capacity, 0) * p.dim;
  TileQueue<C, E> tiles = {
      k_cache + cache, v_cache + cache, p.dim, tile.end, column, index, (threadgroup E*)scratch.tiles};
  tiles.start();
  OwnRows rows = own_rows(simdgroup * kRows);
  attend(q, tile, tiles, column, rows, lane);
  store(rows, tile, out, column, lane);
}

#define SDPA(x, X, c, C) template [[host_name("sdpa_" x "_" c)]] [[kernel]] decltype(sdpa<X, C>) sdpa<X, C>;
#define SDPA_CACHES(x, X) SDPA(x, X, "f32", float) SDPA(x, X, "f16", half) SDPA(x, X, "bf16", bfloat)
SDPA_CACHES("f32", float)
SDPA_CACHES("f16", half)
SDPA_CACHES("bf16", bfloat)
