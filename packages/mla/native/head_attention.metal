// A threadgroup has some tokens of a head, the rows of this block that they see, and kColumns columns of the outputs. Keys
// are those of the head, then the rotated ones that all heads share; they and the values go through threadgroup memory.
#include "head_attention.h"
#include "metal_attention.h"

using namespace metal;
using namespace mlxts;

constant constexpr uint kThreads = HEAD_ATTENTION_THREADS, kRows = HEAD_ATTENTION_TILE_ROWS / (kThreads / kSimd);
constant constexpr uint kKeys = HEAD_ATTENTION_TILE_KEYS, kColumns = HEAD_ATTENTION_TILE_COLUMNS;

// Columns of a tile of keys or values; tiles of rotated keys are half as wide.
template <typename E>
constexpr uint tile_columns() {
  return HEAD_ATTENTION_TILE_ROW_BYTES / sizeof(E);
}

METAL_FUNC uint left(uint at, uint end) { return at < end ? end - at : 0; }

// Some tokens of a head, and what they see of this block's rows.
struct Tokens {
  constant HeadAttentionParams& p;
  uint sequence, head, length;
  uint first, count;
  uint end;  // rows of the cache from here on are seen by no token, or are those of a later block

  // The row of the cache at which what a token sees ends.
  METAL_FUNC uint limit(uint token) const thread {
    return token < count ? min(end, uint(visible_rows(p, length, first + token))) : 0;
  }
  METAL_FUNC bool sees(uint token, uint row) const thread { return row < limit(token); }
  METAL_FUNC ulong row(uint token) const thread {
    return query_row(p, sequence, first + min(token, count - 1), head);
  }
};

METAL_FUNC Tokens tokens_of(constant HeadAttentionParams& p, uint sequence, uint head, uint length, uint first) {
  const uint count = min(p.tokens - first, uint(HEAD_ATTENTION_TILE_ROWS));
  const uint seen = visible_rows(p, length, first + count - 1);
  return {p, sequence, head, length, first, count, min(seen, p.firstRow + p.rows)};
}

// The tiles of a head's keys, of the rotated keys and of the values in the order in which they are multiplied: of each
// block of keys all columns of both, then this threadgroup's columns of the values. While a tile is multiplied, the next
// one is on its way.
template <typename C, typename E>
struct TileQueue {
  constant HeadAttentionParams& p;
  device const E *keys, *values;  // of the block's first row
  device const C* rotated;
  uint end, first, index;  // `first` of the columns of the values
  threadgroup E* slots;    // two tiles
  uint block;
  uint slot = 0, column = 0, part = 0;
  TileCopy<E, E, kKeys, tile_columns<E>(), kThreads> own = {};
  TileCopy<C, E, kKeys, tile_columns<E>() / 2, kThreads> shared = {};

  METAL_FUNC threadgroup E* tile() const thread { return slots + slot * kKeys * tile_stride<E>(tile_columns<E>()); }
  METAL_FUNC void start() thread {
    const uint row = block - p.firstRow, rows = left(block, end);
    if (part == 0)
      start_own(keys, row, rows, p.nope);
    else if (part == 1)
      shared.start(tile(), rotated + ulong(row) * p.ropeStride + column, p.ropeStride, rows, p.rope - column, index);
    else
      start_own(values, row, rows, p.v);
    column += part == 1 ? tile_columns<E>() / 2 : tile_columns<E>();
    if (column < (part == 0 ? p.nope : part == 1 ? p.rope : min(first + kColumns, p.v))) return;
    if (part == 2) block += kKeys;
    part = part == 2 ? 0 : part + 1;
    column = part == 2 ? first : 0;
  }
  // The tile that was on its way, once all have it; the next one starts where the one before was.
  METAL_FUNC threadgroup const E* next(bool rotated_keys) thread {
    threadgroup E* to = tile();
    if (rotated_keys)
      shared.finish(to, index);
    else
      own.finish(to, index);
    threadgroup_barrier(mem_flags::mem_threadgroup);
    slot ^= 1;
    start();
    return to;
  }

 private:
  METAL_FUNC void start_own(device const E* from, uint row, uint rows, uint width) thread {
    const ulong stride = ulong(p.blockHeads) * width;
    own.start(tile(), from + row * stride + column, stride, rows, width - column, index);
  }
};

typedef AttentionRows<kRows, kColumns> OwnRows;

// Columns of q or qPe of a simdgroup's tokens from `token` on.
template <typename X>
struct QueryColumns {
  device const X* from;
  uint stride;
  thread const Tokens& tokens;
  uint token;

  METAL_FUNC device const X* operator()(uint r) const thread { return from + tokens.row(token + r) * stride; }
};

// What a simdgroup's tokens score with the keys of a block. A tile's columns of the queries stay for all blocks.
template <typename X, typename E>
struct Queries {
  device const X *q, *q_pe;
  TileLeft<E, kRows, tile_columns<E>()> own;
  TileLeft<E, kRows, tile_columns<E>() / 2> shared;

  template <typename C>
  METAL_FUNC void score(thread TileSum<kRows, kKeys>& scores, thread TileQueue<C, E>& tiles,
                        thread const Tokens& tokens, uint token, bool first, bool busy, uint lane) thread {
    constexpr uint kWidth = tile_columns<E>(), kShared = kWidth / 2;
    constant HeadAttentionParams& p = tokens.p;
    for (uint d = 0; d < p.nope; d += kWidth) {
      threadgroup const E* keys = tiles.next(false);
      if (!busy) continue;
      if (first || p.nope > kWidth)
        own = load_queries<E, kRows, kWidth>(QueryColumns<X>{q + d, p.qDim, tokens, token}, p.nope - d, lane);
      add_scores(scores, own, keys, p.nope - d);
    }
    for (uint d = 0; d < p.rope; d += kShared) {
      threadgroup const E* keys = tiles.next(true);
      if (!busy) continue;
      if (first || p.rope > kShared)
        shared = load_queries<E, kRows, kShared>(QueryColumns<X>{q_pe + d, p.rope, tokens, token}, p.rope - d, lane);
      add_scores(scores, shared, keys, p.rope - d);
    }
  }
};

// All keys of the block of rows, with the columns of the values from `column` on.
template <typename X, typename C, typename E>
METAL_FUNC void attend(thread Queries<X, E>& queries, thread const Tokens& tokens, thread TileQueue<C, E>& tiles,
                       uint column, thread OwnRows& rows, float scale, uint lane) {
  constexpr uint kWidth = tile_columns<E>();
  constant HeadAttentionParams& p = tokens.p;
  const uint last = min(rows.first + kRows, tokens.count) - 1;
  const uint seen_by_all = tokens.limit(rows.first), seen_by_some = rows.first < tokens.count ? tokens.limit(last) : 0;
  for (uint block = p.firstRow; block < tokens.end; block += kKeys) {
    const bool busy = block < seen_by_some, all_seen = block + kKeys <= seen_by_all;
    TileSum<kRows, kKeys> scores;
    fill(scores, 0.0f);
    queries.score(scores, tiles, tokens, rows.first, block == p.firstRow, busy, lane);
    TileLeft<E, kRows, kKeys> weights;
    if (busy && !all_seen) mask(scores, tokens, rows.first + matrix_row(lane), block + matrix_column(lane));
    if (busy) weights = softmax<E>(scores, rows, scale);
    MLXTS_UNROLL for (uint c = 0; c < kColumns; c += kWidth) {
      if (column + c >= p.v) continue;
      threadgroup const E* values = tiles.next(false);
      if (busy && (all_seen || all_finite<kKeys, kWidth>(values, left(block, seen_by_all), lane)))
        add_values<kWidth>(rows, c, weights, values, p.v - column - c);
      else if (busy)
        add_seen_values<kWidth>(rows, c, weights, values, tokens, block, lane);
    }
  }
}

// Where the softmax and the sums of a simdgroup's rows wait between blocks of the cache. A lane reads and writes its own
// numbers only: of each row maximum and denominator, and its elements of the sums.
struct Running {
  device float* running;
  uint column, lane;

  METAL_FUNC device float* row(thread const Tokens& tokens, uint token) const thread {
    constexpr uint kSize = HEAD_ATTENTION_SOFTMAX_SIZE;
    return running + running_row(tokens.p, tokens.sequence, tokens.first + token, tokens.head) +
           column / kColumns * (kSize + kColumns);
  }
  METAL_FUNC void load(thread OwnRows& rows, thread const Tokens& tokens) const thread {
    MLXTS_UNROLL for (uint r = 0; r < kRows / 8; ++r) {
      const uint token = rows.first + 8 * r + matrix_row(lane);
      if (token >= tokens.count) continue;
      device const float* from = row(tokens, token);
      rows.maxima[r] = from[matrix_column(lane)];
      rows.denominators[r] = from[matrix_column(lane) + 1];
      from += HEAD_ATTENTION_SOFTMAX_SIZE + matrix_column(lane);
      MLXTS_UNROLL for (uint i = 0; i < kColumns / 4; ++i) rows.sums.at(r, i / 2, i % 2) = from[8 * (i / 2) + i % 2];
    }
  }
  METAL_FUNC void store(thread const OwnRows& rows, thread const Tokens& tokens) const thread {
    MLXTS_UNROLL for (uint r = 0; r < kRows / 8; ++r) {
      const uint token = rows.first + 8 * r + matrix_row(lane);
      if (token >= tokens.count) continue;
      device float* to = row(tokens, token);
      to[matrix_column(lane)] = rows.maxima[r];
      to[matrix_column(lane) + 1] = rows.denominators[r];
      store_row(rows, r, 1.0f, to + HEAD_ATTENTION_SOFTMAX_SIZE + matrix_column(lane), kColumns);
    }
  }
};

template <typename O>
METAL_FUNC void store(thread OwnRows& rows, thread const Tokens& tokens, device O* out, uint column, uint lane) {
  const uint first = column + matrix_column(lane), v = tokens.p.v;
  MLXTS_UNROLL for (uint r = 0; r < kRows / 8; ++r) {
    const uint token = rows.first + 8 * r + matrix_row(lane);
    const float inverse = tokens.length == 0 ? 0.0f : 1.0f / row_sum(rows.denominators[r]);
    if (token < tokens.count) store_row(rows, r, inverse, out + tokens.row(token) * v + first, left(first, v));
  }
}

template <typename X, typename C, typename E>
kernel void head_attention(
    device const X* q [[buffer(HEAD_ATTENTION_Q)]], device const X* q_pe [[buffer(HEAD_ATTENTION_Q_PE)]],
    device const E* keys [[buffer(HEAD_ATTENTION_KEYS)]], device const E* values [[buffer(HEAD_ATTENTION_VALUES)]],
    device const C* rotated [[buffer(HEAD_ATTENTION_K_PE_CACHE)]],
    device const Index* lengths [[buffer(HEAD_ATTENTION_LENGTHS)]],
    device float* running [[buffer(HEAD_ATTENTION_RUNNING)]], device uchar* out [[buffer(HEAD_ATTENTION_OUT)]],
    constant HeadAttentionParams& p [[buffer(HEAD_ATTENTION_PARAMS)]],
    device MlxtsFault* fault [[buffer(HEAD_ATTENTION_FAULT)]], threadgroup uchar* memory [[threadgroup(0)]],
    uint3 group [[threadgroup_position_in_grid]], uint3 groups [[threadgroups_per_grid]],
    uint index [[thread_index_in_threadgroup]], uint lane [[thread_index_in_simdgroup]],
    uint simdgroup [[simdgroup_index_in_threadgroup]]) {
  const HeadAttentionScratch scratch = scratch_of(memory, p);
  const Indices all = {lengths, true};
  uint2 agreed = uint2(0);
  if (index < kSimd) {
    const LengthFaults codes = {HEAD_ATTENTION_FAULT_LENGTH, HEAD_ATTENTION_FAULT_NEW_ROWS};
    agreed.x = lengths_right(all, p.batch, least_length(p), p.capacity, FaultSearch{fault, lane}, codes);
    agreed.y = length_at(all, group.z, least_length(p), p.capacity);
  }
  // Whether all lengths are right, and the sequence's own: one answer for the whole threadgroup.
  agreed = threadgroup_first(agreed, scratch.length, index);
  if (agreed.x == 0) return;
  // Last tokens first: when causal they see most and take longest.
  const uint place = groups.x - 1 - group.x, parts = (p.v + kColumns - 1) / kColumns;
  const uint first = place / parts * HEAD_ATTENTION_TILE_ROWS, column = place % parts * kColumns;
  const Tokens tokens = tokens_of(p, group.z, group.y, agreed.y, first);
  const uint seen = visible_rows(p, agreed.y, first + tokens.count - 1);
  // Done in a block before.
  if (p.firstRow > 0 && seen <= p.firstRow) return;
  const ulong row = key_row(p, group.z, p.firstRow, group.y);
  TileQueue<C, E> tiles = {p,
                           keys + row * p.nope,
                           values + row * p.v,
                           rotated + (ulong(group.z) * p.sequenceStride + p.firstRow) * p.ropeStride,
                           tokens.end,
                           column,
                           index,
                           (threadgroup E*)scratch.tiles,
                           p.firstRow};
  tiles.start();
  const Running waiting = {running, column, lane};
  OwnRows rows;
  rows.first = simdgroup * kRows;
  clear(rows);
  if (p.firstRow > 0) waiting.load(rows, tokens);
  Queries<X, E> queries = {q, q_pe, {}, {}};
  attend(queries, tokens, tiles, column, rows, max(p.scale, FLT_MIN), lane);  // 0 · −∞ is no score
  if (seen > tokens.end)
    waiting.store(rows, tokens);
  else if (p.outDtype == 0)
    store(rows, tokens, (device float*)out, column, lane);
  else if (p.outDtype == 1)
    store(rows, tokens, (device half*)out, column, lane);
  else
    store(rows, tokens, (device bfloat*)out, column, lane);
}

#define HEAD_ATTENTION(name, X, C, E)                  \
  template [[host_name("head_attention_" name)]] [[kernel]] \
  decltype(head_attention<X, C, E>) head_attention<X, C, E>;
HEAD_ATTENTION("f32_f32", float, float, float)
HEAD_ATTENTION("f32_f16", float, half, float)
HEAD_ATTENTION("f32_bf16", float, bfloat, float)
HEAD_ATTENTION("f16_f32", half, float, float)
HEAD_ATTENTION("f16_f16", half, half, half)
HEAD_ATTENTION("f16_bf16", half, bfloat, float)
HEAD_ATTENTION("bf16_f32", bfloat, float, float)
HEAD_ATTENTION("bf16_f16", bfloat, half, float)
HEAD_ATTENTION("bf16_bf16", bfloat, bfloat, bfloat)
