// metal_pieces.h in a CUDA translation. So few rows are no work for matrix units: each simdgroup scores some keys of a
// block with all rows, its lanes side by side along the columns; then has a row, for the softmax; then adds the values
// of its own columns, each quarter of its lanes those of some keys. The keys and values of the next block are on their
// way meanwhile.
#pragma once
#include "piece_products_cuda.h"

namespace mlxts {

constant constexpr uint kRows = SDPA_PIECES_TILE_ROWS, kBlockKeys = SDPA_PIECES_BLOCK_KEYS;
constant constexpr uint kSimdgroups = SDPA_PIECES_SIMDGROUPS, kScoreStride = SDPA_PIECES_SCORE_STRIDE;
constant constexpr uint kOwnKeys = kBlockKeys / kSimdgroups;  // that a simdgroup scores
constant constexpr uint kQuarter = kSimd / 4, kQuarterKeys = kBlockKeys / 4;
constant constexpr uint kStep = 4 * kSimd, kHeld = 2;  // columns of a simdgroup's load; loads of a key that are held
static_assert(kBlockKeys == kSimd && kRows == kSimdgroups, "a simdgroup has a row, and a lane a score of it");
static_assert(kRows * kOwnKeys == kSimd, "a lane gets one of a simdgroup's scores");
static_assert(SDPA_PIECES_TILE_COLUMNS == kSimdgroups * kQuarter * 4, "a quarter has all columns of its simdgroup");

// Four elements as the words that a load brings: taken apart any earlier than they are used, they would be waited for.
template <typename T>
METAL_FUNC float4 widened(AtOnce<T> words) {
  const metal::vec<T, 4> v = as_type<metal::vec<T, 4>>(words);
  return float4(float(v.x), float(v.y), float(v.z), float(v.w));
}

// Rows of a cache from `first` on, of which those before `end` exist.
template <typename T>
struct CacheRows {
  device const T* from;
  uint dim, first, end;

  METAL_FUNC CacheRows(device const T* cache, uint dim, uint first, uint end)
      : from(cache + ulong(first) * dim), dim(dim), first(first), end(end) {}
  METAL_FUNC bool exists(uint i) const thread { return first + i < end; }
  METAL_FUNC device const T* operator()(uint i) const thread { return from + i * dim; }
};

// Four neighbors from `column` on of each of some rows, zeros where there are none. `whole`: all rows are aligned and
// have whole fours, so that no load waits for another.
template <typename T, uint Count, typename Rows>
METAL_FUNC void load_fours(thread AtOnce<T> (&to)[Count], Rows rows, uint column, uint dim, bool whole) {
  MLXTS_UNROLL for (uint i = 0; i < Count; ++i) to[i] = AtOnce<T>(0u);
  if (whole) {
    MLXTS_UNROLL for (uint i = 0; i < Count; ++i) if (rows.exists(i) && column < dim) to[i] =
        *(device const AtOnce<T>*)(rows(i) + column);
    return;
  }
  MLXTS_UNROLL for (uint i = 0; i < Count; ++i) {
    metal::vec<T, 4> v = as_type<metal::vec<T, 4>>(to[i]);
    MLXTS_UNROLL for (uint e = 0; e < 4; ++e) if (rows.exists(i) && column + e < dim) v[e] = rows(i)[column + e];
    to[i] = as_type<AtOnce<T>>(v);
  }
}

METAL_FUNC float dot4(float4 a, float4 b, float sum) {
  return metal::fma(a.w, b.w, metal::fma(a.z, b.z, metal::fma(a.y, b.y, metal::fma(a.x, b.x, sum))));
}

// The sums of `Count` numbers over lanes that differ in the bits from `Bit` on up to `Top`: of them a lane gets those
// whose index has its own bits, in `Count` · Bit / (2 · Top) numbers.
template <uint Count, uint Bit, uint Top>
METAL_FUNC void sum_over_lanes(thread float* values, uint lane) {
  if constexpr (Top >= Bit) {
    constexpr uint kHalf = Count / 2;
    const bool upper = (lane & Top) != 0;
    MLXTS_UNROLL for (uint i = 0; i < kHalf; ++i) {
      const float kept = upper ? values[i + kHalf] : values[i], given = upper ? values[i] : values[i + kHalf];
      values[i] = kept + metal::simd_shuffle_xor(given, ushort(Top));
    }
    sum_over_lanes<kHalf, Bit, Top / 2>(values, lane);
  }
}

// Half of a tile's rows of q: there are often no more than these.
constant constexpr uint kHalf = kRows / 2;
template <typename X>
struct QueryHalf {
  device const X* q;
  thread const ulong (&from)[kRows];
  uint first;

  METAL_FUNC bool exists(uint) const thread { return true; }
  METAL_FUNC device const X* operator()(uint i) const thread { return q + from[first + i]; }
};

template <typename X, typename C>
struct PieceAttention {
  typedef AtOnce<C> Four;
  typedef AtOnce<X> FourQueries;
  device const X* q;
  device const C *keys, *values;
  thread const AttentionTile& tile;
  uint dim, lane, simdgroup;
  bool whole;
  ulong from[kRows];  // elements of q at which the rows begin; those that do not exist are the last one once more
  FourQueries held_queries[kHeld][kHalf];  // of the first half of the rows
  Four held_keys[kHeld][kOwnKeys], held_values[kQuarterKeys];

  METAL_FUNC uint value_column() const thread { return (simdgroup * kQuarter + lane % kQuarter) * 4; }
  METAL_FUNC void load_keys(thread Four (&to)[kOwnKeys], uint block, uint column) const thread {
    load_fours<C>(to, CacheRows<C>(keys, dim, block + simdgroup * kOwnKeys, tile.end), column, dim, whole);
  }
  METAL_FUNC void start_queries() thread {
    MLXTS_UNROLL for (uint c = 0; c < kHeld; ++c)
        load_fours<X>(held_queries[c], QueryHalf<X>{q, from, 0}, c * kStep + lane * 4, dim, whole);
  }
  METAL_FUNC void start_keys(uint block) thread {
    MLXTS_UNROLL for (uint c = 0; c < kHeld; ++c) load_keys(held_keys[c], block, c * kStep + lane * 4);
  }
  METAL_FUNC void start_values(uint block, uint column) thread {
    const CacheRows<C> rows(values, dim, block + lane / kQuarter * kQuarterKeys, tile.end);
    load_fours<C>(held_values, rows, column + value_column(), dim, whole);
  }

  // Adds the products of four columns with this lane's part of half of the rows of q.
  METAL_FUNC void add_half(thread float (&products)[kSimd], thread const FourQueries (&x)[kHalf],
                           thread const Four (&own)[kOwnKeys], uint first) thread {
    MLXTS_UNROLL for (uint r = 0; r < kHalf; ++r) {
      thread float* to = products + (first + r) * kOwnKeys;
      MLXTS_UNROLL for (uint i = 0; i < kOwnKeys; ++i) to[i] = dot4(widened<X>(x[r]), widened<C>(own[i]), to[i]);
    }
  }
  METAL_FUNC void add_other_half(thread float (&products)[kSimd], thread const Four (&own)[kOwnKeys],
                                 uint column) thread {
    if (kHalf >= tile.rows) return;
    FourQueries x[kHalf];
    load_fours<X>(x, QueryHalf<X>{q, from, kHalf}, column, dim, whole);
    add_half(products, x, own, kHalf);
  }
  METAL_FUNC void score(uint block, threadgroup float* scores) thread {
    float products[kSimd] = {};
    MLXTS_UNROLL for (uint c = 0; c < kHeld; ++c) {
      if (c * kStep >= dim) break;
      add_half(products, held_queries[c], held_keys[c], 0);
      add_other_half(products, held_keys[c], c * kStep + lane * 4);
    }
    for (uint d = kHeld * kStep; d < dim; d += kStep) {
      FourQueries x[kHalf];
      Four own[kOwnKeys];
      load_fours<X>(x, QueryHalf<X>{q, from, 0}, d + lane * 4, dim, whole);
      load_keys(own, block, d + lane * 4);
      add_half(products, x, own, 0);
      add_other_half(products, own, d + lane * 4);
    }
    sum_over_lanes<kSimd, 1, kSimd / 2>(products, lane);
    scores[lane / kOwnKeys * kScoreStride + simdgroup * kOwnKeys + lane % kOwnKeys] = products[0];
  }

  // Adds the weighted values of a block to the sums. Where a row does not see all keys, it takes nothing of the others:
  // 0 · NaN would be NaN.
  template <bool AllSeen>
  METAL_FUNC void add_values(thread float (&sums)[kRows * 4], threadgroup const float* weights, uint block) thread {
    const uint first = lane / kQuarter * kQuarterKeys;
    float4 v[kQuarterKeys];
    MLXTS_UNROLL for (uint i = 0; i < kQuarterKeys; ++i) v[i] = widened<C>(held_values[i]);
    MLXTS_UNROLL for (uint half_rows = 0; half_rows < kRows; half_rows += kHalf) {
      if (half_rows >= tile.rows) break;
      MLXTS_UNROLL for (uint r = half_rows; r < half_rows + kHalf; ++r) {
        threadgroup const float4* own = (threadgroup const float4*)(weights + r * kScoreStride + first);
        const uint seen = AllSeen ? kBlockKeys : left(block + first, tile.limit(r));
        MLXTS_UNROLL for (uint i = 0; i < kQuarterKeys; ++i) {
          const float weight = own[i / 4][i % 4];
          MLXTS_UNROLL for (uint e = 0; e < 4; ++e) {
            const float sum = metal::fma(weight, v[i][e], sums[4 * r + e]);
            sums[4 * r + e] = AllSeen || i < seen ? sum : sums[4 * r + e];
          }
        }
      }
    }
  }
};

// The scores of a row become exp(scale · score − maximum), and 0 behind the first `seen` keys. Returns the factor for
// the row's earlier sums.
METAL_FUNC float softmax_row(threadgroup float* scores, uint seen, float scale, thread float& maximum,
                             thread float& denominator, uint lane) {
  const float score = lane < seen ? scores[lane] * scale : -INFINITY;
  const float now = metal::max(maximum, metal::simd_max(score));
  // Where the maximum is −∞, any base gives exp(−∞) = 0.
  const float base = now == -INFINITY ? 0.0f : now;
  const float factor = metal::precise::exp(maximum - base), weight = metal::precise::exp(score - base);
  scores[lane] = weight;
  maximum = now;
  denominator = denominator * factor + metal::simd_sum(weight);
  return factor;
}

// The maximum, denominator and sums of each row of a tile, over the keys of a piece.
template <typename X, typename C>
METAL_FUNC void attend_piece(device const X* q, device const C* keys, device const C* values,
                             thread const AttentionTile& tile, device float* to, SdpaPiecesScratch scratch, uint lane,
                             uint simdgroup) {
  if constexpr (metal::is_same_v<X, C> && !metal::is_same_v<X, float>)
    if (attended_by_products(q, keys, values, tile, to, scratch, lane, simdgroup)) return;
  const uint dim = tile.queries.dim, limit = tile.limit(simdgroup);
  const bool whole = dim % 4 == 0 && aligned_to_four(q) && aligned_to_four(keys) && aligned_to_four(values);
  PieceAttention<X, C> attention = {q, keys, values, tile, dim, lane, simdgroup, whole};
  tile.addresses(attention.from);
  attention.start_queries();
  float maximum = -INFINITY, denominator = 0.0f;
  uint next = 0;
  for (uint column = 0; column < dim; column += SDPA_PIECES_TILE_COLUMNS) {
    attention.start_keys(tile.begin);
    attention.start_values(tile.begin, column);
    maximum = -INFINITY, denominator = 0.0f;
    float sums[kRows * 4] = {};
    for (uint block = tile.begin; block < tile.end; block += kBlockKeys) {
      threadgroup float* scores = next ? scratch.scores1 : scratch.scores0;
      next ^= 1;
      attention.score(block, scores);
      const bool more = block + kBlockKeys < tile.end;
      if (more) attention.start_keys(block + kBlockKeys);
      threadgroup_barrier(metal::mem_flags::mem_threadgroup);
      const float own =
          softmax_row(scores + simdgroup * kScoreStride, left(block, limit), tile.scale, maximum, denominator, lane);
      if (lane == 0) scratch.factors[simdgroup] = own;
      threadgroup_barrier(metal::mem_flags::mem_threadgroup);
      if (block > tile.begin)
        MLXTS_UNROLL for (uint r = 0; r < kRows; ++r) MLXTS_UNROLL for (uint e = 0; e < 4; ++e) sums[4 * r + e] *=
            scratch.factors[r];
      if (metal::min(block + kBlockKeys, tile.end) <= tile.limit(0))
        attention.template add_values<true>(sums, scores, block);
      else
        attention.template add_values<false>(sums, scores, block);
      if (more) attention.start_values(block + kBlockKeys, column);
    }
    sum_over_lanes<kRows * 4, kQuarter, kSimd / 2>(sums, lane);
    constexpr uint kOwnRows = kRows / 4;
    MLXTS_UNROLL for (uint i = 0; i < kOwnRows; ++i) {
      const uint row = lane / kQuarter * kOwnRows + i, at = column + attention.value_column();
      device float* own = to + ulong(row) * partial_size(dim) + SDPA_PIECES_SOFTMAX_SIZE + at;
      if (row >= tile.rows) continue;
      if (dim % 4 == 0) {
        if (at < dim) store4_at_once(own, float4(sums[4 * i], sums[4 * i + 1], sums[4 * i + 2], sums[4 * i + 3]));
        continue;
      }
      MLXTS_UNROLL for (uint e = 0; e < 4; ++e) if (at + e < dim) own[e] = sums[4 * i + e];
    }
  }
  if (lane > 0 || simdgroup >= tile.rows) return;
  device float* softmax = to + ulong(simdgroup) * partial_size(dim);
  softmax[0] = maximum;
  softmax[1] = denominator;
}

}  // namespace mlxts
