// One threadgroup: a piece of a key/value head's cache, for all query rows that share the head. Each row of the cache is
// read from memory once, in place: a block of keys for tiles of dot products with the queries, then the block's values.
#include "kv_cache.h"
#include "matrix_reduce.h"
#include "online_softmax.h"
#include "query_rows.h"
#include "weighted_values.h"

using namespace mlxts;

namespace {

static_assert(kBlockKeys == SDPA_PIECES_BLOCK_KEYS);

// Queries that meet a value at once.
constexpr int kQueries = kLanes == 16 ? 4 : 2;
// Queries of a tile of dot products where few are left, and keys that are read side by side.
constexpr int kFewQueries = kLanes == 16 ? kDotLefts : kDotLefts / 2;
constexpr int kKeys = kLanes / kFewQueries;

// Keys of a block. A block's keys and its values lie in two places: while a row is read in one, a row in the other is
// fetched near, so few queries, which are as fast as memory, have blocks with room in the nearest cache. Many queries
// take longer, and then larger blocks cost less besides.
template <typename C>
int block_keys(size_t rows, size_t dim) {
  const size_t room = 16384 * ((rows + kQueries - 1) / kQueries);
  int keys = kBlockKeys;
  while (keys > 16 && keys * dim * sizeof(C) > room) keys /= 2;
  return keys;
}

// Scaled scores [rows, kBlockKeys] of Q queries, of which there are `rows`, with kLanes / Q keys. Queries that are too
// few repeat the last one.
template <int Q, typename X, typename C>
MLXTS_INLINE void score_tile(const X* queries, size_t stride, int rows, const C* const* keys, size_t dim,
                             intptr_t ahead, float scale, float* scores) {
  constexpr int kTileKeys = kLanes / Q;
  const X* q[Q];
  for (int i = 0; i < Q; ++i) q[i] = queries + (i < rows ? i : rows - 1) * stride;
  const C* k[kTileKeys];
  for (int j = 0; j < kTileKeys; ++j) k[j] = keys[j];
  vf32 sums[kLanes];
  MLXTS_UNROLL
  for (int i = 0; i < kLanes; ++i) sums[i] = vf32{};
  add_dots(q, k, dim, sums, [ahead](const C* from) { prefetch(from, ahead); });
  float tile[kLanes];
  store(tile, reduce_add_all(sums) * splat(scale));
  for (int i = 0; i < Q && i < rows; ++i)
    memcpy(scores + i * kBlockKeys, tile + i * kTileKeys, kTileKeys * sizeof(float));
}

// The same of all queries with `count` keys. Keys that are too few for a tile repeat the last one.
template <typename X, typename C>
__attribute__((noinline)) void score_block(const X* queries, size_t stride, int rows, const C* keys, size_t dim,
                                           int count, intptr_t ahead, float scale, float* scores) {
  for (int t = 0; t < count; t += kKeys) {
    const C* k[kKeys];
    for (int j = 0; j < kKeys; ++j) k[j] = keys + (t + j < count ? t + j : count - 1) * dim;
    int row = 0;
    if constexpr (kFewQueries < kDotLefts)
      for (; rows - row > kFewQueries; row += kDotLefts)
        for (int key = 0; key < kKeys && t + key < count; key += kDotRows)
          score_tile<kDotLefts>(queries + row * stride, stride, rows - row, k + key, dim, ahead, scale,
                                scores + row * kBlockKeys + t + key);
    for (; row < rows; row += kFewQueries)
      score_tile<kFewQueries>(queries + row * stride, stride, rows - row, k, dim, ahead, scale,
                              scores + row * kBlockKeys + t);
  }
}

// A piece of a key/value head's cache, and the query rows that share the head.
template <typename X, typename C>
struct Piece {
  static constexpr bool kBf16 = kDotsBf16<X, C>;
  using E = std::conditional_t<kBf16, bf16, float>;  // an element of queries and of weights

  const SdpaPiecesParams& p;
  const SdpaPiecesScratch& scratch;
  QueryRows queries;
  size_t begin, end;  // of the keys

  int rows() const { return int(queries.rows); }
  Softmax softmax() const { return {scratch.maxima, scratch.denominators}; }
  E* query(int row) const { return reinterpret_cast<E*>(scratch.queries) + row * p.width; }
  E* weights(int row) const {
    return static_cast<E*>(kBf16 ? static_cast<void*>(scratch.weights) : scratch.scores) + row * kBlockKeys;
  }

  void load_queries(const X* q) const {
    for (int row = 0; row < rows(); ++row) {
      to_load_order<C>(q + queries.address(row), p.dim, query(row));
      memset(scratch.sums + row * p.width, 0, p.width * sizeof(float));
      softmax().clear(row);
    }
  }

  // The `count` keys from `key` on. `keys` and `values` are those of the whole cache.
  void attend(const C* keys, const C* values, size_t key, int count) const {
    const intptr_t to_values = reinterpret_cast<const char*>(values) - reinterpret_cast<const char*>(keys);
    const intptr_t to_keys = intptr_t(count * p.dim * sizeof(C)) - to_values;
    score_block(query(0), p.width, rows(), keys + key * p.dim, p.dim, count, to_values, p.scale, scratch.scores);
    for (int row = 0, some; row < rows(); row += some) {
      some = rows() - row >= kQueries ? kQueries : 1;
      int counts[kQueries];
      float factors[kSoftmaxRows];
      for (int r = 0; r < some; ++r) counts[r] = seen(key, count, row + r);
      softmax_rows(scratch.scores + row * kBlockKeys, kBlockKeys, row, some, counts, 1.0f, softmax(), factors,
                   weights(row));
      add_rows(values + key * p.dim, row, some, counts, to_keys, factors);
    }
  }

  // How many of the `count` keys from `key` on a row sees.
  int seen(size_t key, int count, int row) const {
    const size_t visible = queries.visible(row);
    return int(visible <= key ? 0 : visible - key < size_t(count) ? visible - key : count);
  }

  // Adds the weighted values of a block: those that the first row sees for `some` rows together, the others for each row.
  void add_rows(const C* values, int row, int some, const int* counts, intptr_t ahead, const float* factors) const {
    float* sums = scratch.sums + row * p.width;
    int common = counts[0];
    // Weights of bf16 begin at an even row.
    if (kBf16 && common < counts[some - 1]) common -= common % 2;
    const auto add = some == 1 ? add_weighted<1, E, C> : add_weighted<kQueries, E, C>;
    add(weights(row), values, p.dim, common, ahead, factors, sums, p.width);
    for (int r = 0; r < some; ++r)
      if (counts[r] > common)
        add_weighted<1>(weights(row + r) + common, values + common * p.dim, p.dim, counts[r] - common, 0, kKeep,
                        sums + r * p.width, p.width);
  }

  void store_rows(float* partial) const {
    for (int row = 0; row < rows(); ++row, partial += partial_size(p.dim)) {
      partial[0] = scratch.maxima[row];
      partial[1] = scratch.denominators[row];
      const float* sums = scratch.sums + row * p.width;
      if (kBf16)
        memcpy(partial + SDPA_PIECES_SOFTMAX_SIZE, sums, p.dim * sizeof(float));
      else
        from_load_order<C>(sums, p.dim, partial + SDPA_PIECES_SOFTMAX_SIZE);
    }
  }
};

template <typename X, typename C>
int32_t sdpa_pieces(const Launch& l) {
  const auto& p = l.args<SdpaPiecesParams>();
  const auto scratch = scratch_of(l, p);
  const Indices lengths = l.indices(SDPA_PIECES_LENGTHS);
  const size_t least = least_length(p), pieces = l.threadgroups[0];
  const size_t block = block_keys<C>(size_t(p.tokens) * (p.heads / p.kvHeads), p.dim);
  const LengthFaults codes = {SDPA_PIECES_FAULT_LENGTH, SDPA_PIECES_FAULT_NEW_ROWS};
  if (!lengths_right(lengths, p.batch, least, p.capacity, l, codes)) return 1;
  for (uint64_t group = l.begin; group < l.end; ++group) {
    const size_t at = group % pieces, head = group / pieces % p.kvHeads, b = group / pieces / p.kvHeads;
    const size_t length = length_at(lengths, b, least, p.capacity), rows = piece_keys(length, p.mostPieces);
    const size_t begin = at * rows;
    if (begin >= length) continue;
    const size_t end = length - begin < rows ? length : begin + rows;
    const Piece<X, C> piece = {p, scratch, query_rows(p, b, head, length), begin, end};
    const size_t cache = cache_row(b, head, p.kvHeads, p.capacity, 0) * p.dim;
    const C* keys = l.buffer<const C>(SDPA_PIECES_K_CACHE) + cache;
    const C* values = l.buffer<const C>(SDPA_PIECES_V_CACHE) + cache;
    piece.load_queries(l.buffer<const X>(SDPA_PIECES_Q));
    for (size_t key = begin; key < end; key += block)
      piece.attend(keys, values, key, int(end - key < block ? end - key : block));
    const uint64_t to = partial_address(b * p.kvHeads + head, at, pieces, 0, piece.rows(), p.dim);
    piece.store_rows(l.buffer<float>(SDPA_PIECES_PARTIAL) + to);
  }
  return 0;
}

}  // namespace

MLXTS_KERNEL(sdpa_pieces_f32_f32, sdpa_pieces<float, float>)
MLXTS_KERNEL(sdpa_pieces_f32_f16, sdpa_pieces<float, f16>)
MLXTS_KERNEL(sdpa_pieces_f32_bf16, sdpa_pieces<float, bf16>)
MLXTS_KERNEL(sdpa_pieces_f16_f32, sdpa_pieces<f16, float>)
MLXTS_KERNEL(sdpa_pieces_f16_f16, sdpa_pieces<f16, f16>)
MLXTS_KERNEL(sdpa_pieces_f16_bf16, sdpa_pieces<f16, bf16>)
MLXTS_KERNEL(sdpa_pieces_bf16_f32, sdpa_pieces<bf16, float>)
MLXTS_KERNEL(sdpa_pieces_bf16_f16, sdpa_pieces<bf16, f16>)
MLXTS_KERNEL_OF_LEFT(sdpa_pieces_bf16_bf16, bf16, bf16, sdpa_pieces<L, bf16>(launch))
