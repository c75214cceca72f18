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
    copy.start(from, dim, left(block, end), dim - column, index);
    column += tile_columns<E>();
    if (column < (of_values ? min(first + kColumns, dim) : dim)) return;
    if (of_values) block += kKeys;
    of_values = !of_values;
    column = of_values ? first : 0;
  }
  METAL_FUNC void finish() thread {
    slot ^= 1;
    copy.finish(tile(), index);
  }
  // The tile that has been finished, while the next one starts.
  METAL_FUNC threadgroup const E* next() thread {
    threadgroup_barrier(mem_flags::mem_threadgroup);
    start();
    return tile();
  }
};

// The query rows of a simdgroup, of which a lane has every eighth: their online softmax and sums. A denominator is the
// sum over the lane's keys.
struct OwnRows {
  uint first, seenByAll, seenBySome;  // the keys at which ends what all rows see, and what some see
  uint limits[kRows / 8];             // and what each row sees
  float maxima[kRows / 8], denominators[kRows / 8];
  TileSum<kRows, kColumns> sums;
};

METAL_FUNC OwnRows own_rows(thread const AttentionTile& tile, uint first, uint lane) {
  OwnRows rows;
  rows.first = first;
  rows.seenByAll = tile.limit(first);
  rows.seenBySome = first < tile.rows ? tile.limit(min(first + kRows, tile.rows) - 1) : 0;
  MLXTS_UNROLL for (uint r = 0; r < kRows / 8; ++r) {
    rows.limits[r] = tile.limit(first + 8 * r + matrix_row(lane));
    rows.maxima[r] = -INFINITY;
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
  MLXTS_UNROLL for (uint r = 0; r < kRows / 8; ++r) {
    const uint own = row + 8 * r + matrix_row(lane);
    device const X* from = q + tile.address(own);
    MLXTS_UNROLL for (uint c = 0; c < tile_columns<E>() / 8; ++c) MLXTS_UNROLL for (uint e = 0; e < 2; ++e) {
      const uint at = column + 8 * c + matrix_column(lane) + e;
      x.at(r, c, e) = own < tile.rows && at < tile.queries.dim ? float(from[at]) : 0.0f;
    }
  }
  return as_left<E>(x);
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

// The scores of a block become weights exp(scale · score − maximum), rounded to E, and 0 for keys that a row does not
// see. The earlier sums are scaled for the new maximum.
template <typename E>
METAL_FUNC void softmax(thread TileSum<kRows, kKeys>& scores, thread OwnRows& rows, uint block, float scale,
                        uint lane) {
  const bool all_seen = block + kKeys <= rows.seenByAll;
  scale *= Power<E>::kScale;
  float factors[kRows / 8];
  MLXTS_UNROLL for (uint r = 0; r < kRows / 8; ++r) {
    float maximum = rows.maxima[r];
    MLXTS_UNROLL for (uint c = 0; c < kKeys / 8; ++c) MLXTS_UNROLL for (uint e = 0; e < 2; ++e) {
      const bool seen = all_seen || block + 8 * c + matrix_column(lane) + e < rows.limits[r];
      scores.at(r, c, e) = seen ? scores.at(r, c, e) * scale : -INFINITY;
      maximum = max(maximum, scores.at(r, c, e));
    }
    maximum = row_max(maximum);
    // Where the maximum is −∞, any base gives a power of 0.
    const float base = maximum == -INFINITY ? 0.0f : maximum;
    factors[r] = Power<E>::of(rows.maxima[r] - base);
    rows.maxima[r] = maximum;
    rows.denominators[r] *= factors[r];
    MLXTS_UNROLL for (uint c = 0; c < kKeys / 8; ++c) MLXTS_UNROLL for (uint e = 0; e < 2; ++e) {
      scores.at(r, c, e) = float(E(Power<E>::of(scores.at(r, c, e) - (base - Power<E>::kMost))));
      rows.denominators[r] += scores.at(r, c, e);
    }
  }
  scale_rows(rows.sums, factors);
}

// Whether all values of a tile from key `first` on are finite.
template <typename E>
METAL_FUNC bool all_finite(threadgroup const E* values, uint first, uint lane) {
  bool finite = true;
  for (uint key = first; key < kKeys; ++key) {
    for (uint column = lane; column < tile_columns<E>(); column += kSimd)
      finite = finite && isfinite(float(values[key * tile_stride<E>(tile_columns<E>()) + column]));
  }
  return simd_all(finite);
}

// Adds a tile of values, times the weights of its keys, to the columns of the sums from `first` on, 32 at a time.
template <typename E>
METAL_FUNC void add_values(thread OwnRows& rows, uint first, thread TileSum<kRows, kKeys>& weights,
                           threadgroup const E* values, uint columns) {
  const TileLeft<E, kRows, kKeys> x = as_left<E>(weights);
  MLXTS_UNROLL for (uint c = 0; c < tile_columns<E>(); c += 32) {
    if (c >= columns) continue;
    TileRight<E, kKeys, 32> y;
    load(y, values + c, tile_stride<E>(tile_columns<E>()));
    multiply_add_columns(rows.sums, first + c, x, y);
  }
}

// The same where values that some rows do not see are not finite. Each key goes to the rows that see it: in a product
// the others would get 0 · NaN, which is NaN.
template <typename E>
METAL_FUNC void add_seen_values(thread OwnRows& rows, uint first, thread TileSum<kRows, kKeys>& weights,
                                threadgroup const E* values, uint block, uint lane) {
  for (uint key = 0; key < kKeys; ++key) {
    threadgroup const E* own = values + key * tile_stride<E>(tile_columns<E>()) + matrix_column(lane);
    MLXTS_UNROLL for (uint r = 0; r < kRows / 8; ++r) {
      float weight = 0.0f;
      MLXTS_UNROLL for (uint c = 0; c < kKeys / 8; ++c) {
        MLXTS_UNROLL for (uint e = 0; e < 2; ++e) {
          if (8 * c + matrix_column(lane) + e == key) weight = weights.at(r, c, e);
        }
      }
      weight = row_sum(weight);
      if (block + key >= rows.limits[r]) continue;
      MLXTS_UNROLL for (uint c = 0; c < tile_columns<E>() / 8; ++c) {
        MLXTS_UNROLL for (uint e = 0; e < 2; ++e) rows.sums.at(r, first / 8 + c, e) += weight * float(own[8 * c + e]);
      }
    }
  }
}

// All keys of a tile of queries, with the columns of the values from `column` on.
template <typename X, typename C, typename E>
METAL_FUNC void attend(device const X* q, thread const AttentionTile& tile, thread TileQueue<C, E>& tiles, uint column,
                       thread OwnRows& rows, uint lane) {
  constexpr uint kWidth = tile_columns<E>();
  const uint dim = tile.queries.dim;
  TileLeft<E, kRows, kWidth> queries;
  for (uint block = 0; block < tile.end; block += kKeys) {
    const bool busy = block < rows.seenBySome;
    TileSum<kRows, kKeys> scores;
    fill(scores, 0.0f);
    for (uint d = 0; d < dim; d += kWidth) {
      threadgroup const E* keys = tiles.next();
      // One tile's columns of the queries stay for all blocks.
      if (busy && (block == 0 || dim > kWidth)) queries = load_queries<E>(q, tile, rows.first, d, lane);
      MLXTS_UNROLL for (uint k = 0; k < kWidth / 16; ++k) {
        if (!busy || d + 16 * k >= dim) continue;
        const TileLeft<E, kRows, 16> x = columns_of(queries, k);
        TileRight<E, 16, kKeys> y;
        load_transposed(y, keys + 16 * k, tile_stride<E>(kWidth));
        multiply_add(scores, x, y);
      }
      tiles.finish();
    }
    if (busy) softmax<E>(scores, rows, block, tile.scale, lane);
    MLXTS_UNROLL for (uint c = 0; c < kColumns; c += kWidth) {
      if (column + c >= dim) continue;
      threadgroup const E* values = tiles.next();
      if (busy && all_finite(values, left(block, rows.seenByAll), lane))
        add_values(rows, c, scores, values, dim - column - c);
      else if (busy)
        add_seen_values(rows, c, scores, values, block, lane);
      tiles.finish();
    }
  }
}

template <typename X>
METAL_FUNC void store(thread OwnRows& rows, thread const AttentionTile& tile, device X* out, uint column, uint lane) {
  MLXTS_UNROLL for (uint r = 0; r < kRows / 8; ++r) {
    const uint row = rows.first + 8 * r + matrix_row(lane);
    const float inverse = tile.end == 0 ? 0.0f : 1.0f / row_sum(rows.denominators[r]);
    if (row >= tile.rows) continue;
    MLXTS_UNROLL for (uint c = 0; c < kColumns / 8; ++c) MLXTS_UNROLL for (uint e = 0; e < 2; ++e) {
      const uint at = column + 8 * c + matrix_column(lane) + e;
      if (at < tile.queries.dim) out[tile.address(row) + at] = X(rows.sums.at(r, c, e) * inverse);
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
  const uint kv_head = group.y, sequence = group.z;
  const CheckedLength checked = checked_length(lengths, sequence, p, FaultSearch{fault, lane},
                                               {SDPA_FAULT_LENGTH, SDPA_FAULT_NEW_ROWS}, scratch.length, index);
  if (!checked.right) return;
  // Last rows first: when causal they see most and take longest.
  const uint place = groups.x - 1 - group.x, parts = (p.dim + kColumns - 1) / kColumns;
  const uint first = place / parts * SDPA_TILE_ROWS, column = place % parts * kColumns;
  const AttentionTile tile = attention_tile(query_rows(p, sequence, kv_head, checked.length), first, SDPA_TILE_ROWS, 0,
                                            checked.length, p.scale);
  const ulong cache = cache_row(sequence, kv_head, p.kvHeads, p.capacity, 0) * p.dim;
  TileQueue<C, E> tiles = {
      k_cache + cache, v_cache + cache, p.dim, tile.end, column, index, (threadgroup E*)scratch.tiles};
  tiles.start();
  tiles.finish();
  OwnRows rows = own_rows(tile, simdgroup * kRows, lane);
  attend(q, tile, tiles, column, rows, lane);
  store(rows, tile, out, column, lane);
}

#define SDPA(name, X, C) template [[host_name("sdpa_" name)]] [[kernel]] decltype(sdpa<X, C>) sdpa<X, C>;
SDPA("f32_f32", float, float)
SDPA("f32_f16", float, half)
SDPA("f32_bf16", float, bfloat)
SDPA("f16_f32", half, float)
SDPA("f16_f16", half, half)
SDPA("f16_bf16", half, bfloat)
SDPA("bf16_f32", bfloat, float)
SDPA("bf16_f16", bfloat, half)
SDPA("bf16_bf16", bfloat, bfloat)
