// One threadgroup: a piece of a key/value head's cache, for all query rows that share the head. Each row of the cache is
// read from memory once, in place: a block of keys for tiles of dot products with the queries, then the block's values.
#include "kv_cache.h"
#include "matrix_reduce.h"
#include "matrix_rows.h"
#include "online_softmax.h"
#include "query_rows.h"

using namespace mlxts;

namespace {

static_assert(kBlockKeys == SDPA_PIECES_BLOCK_KEYS);

// Queries and keys of a tile of dot products.
constexpr int kQueries = kDotLefts, kKeys = kDotRows;

constexpr float kWhole = 1;  // the factor of sums that are added to

// A block's keys and its values lie in two places, in runs too short for the hardware's prefetcher: while a run is read
// in one place, the next run in the other is fetched.
template <typename C>
MLXTS_INLINE void prefetch(const C* from, intptr_t ahead) {
  for (size_t line = 0; line < 2 * kLanes * sizeof(C); line += 64)
    __builtin_prefetch(reinterpret_cast<const char*>(from) + ahead + line);
}

// sums[i] = factors[i] · sums[i] + Σ_t weights[i][t] · values[t] over `count` rows of values, for Q queries and 2·W vectors
// of columns; with a `tail`, for its columns alone.
template <typename C, int Q, int W>
MLXTS_INLINE void add_values(const float* weights, const C* values, size_t dim, int count, int tail, intptr_t ahead,
                             const float* factors, float* sums, size_t sum_stride) {
  vf32 sum[Q][2 * W];
  MLXTS_UNROLL
  for (int i = 0; i < Q; ++i)
  MLXTS_UNROLL
    for (int v = 0; v < 2 * W; ++v) sum[i][v] = load(sums + i * sum_stride + v * kLanes) * splat(factors[i]);
  const auto add = [&](int t, auto get) {
    vf32 value[2 * W];
  MLXTS_UNROLL
    for (int w = 0; w < W; ++w) get(values + t * dim + w * 2 * kLanes, value[2 * w], value[2 * w + 1]);
  MLXTS_UNROLL
    for (int i = 0; i < Q; ++i) {
      const vf32 weight = splat(weights[i * kBlockKeys + t]);
  MLXTS_UNROLL
      for (int v = 0; v < 2 * W; ++v) sum[i][v] = fma(weight, value[v], sum[i][v]);
    }
  };
  if (tail == 0)
    for (int t = 0; t < count; ++t)
      add(t, [&](const C* from, vf32& a, vf32& b) {
        prefetch(from, ahead);
        load_two(from, a, b);
      });
  else
    for (int t = 0; t < count; ++t)
      add(t, [&](const C* from, vf32& a, vf32& b) { load_two_partial(from, tail, a, b); });
  MLXTS_UNROLL
  for (int i = 0; i < Q; ++i)
  MLXTS_UNROLL
    for (int v = 0; v < 2 * W; ++v) store(sums + i * sum_stride + v * kLanes, sum[i][v]);
}

// The same for all columns.
template <typename C, int Q>
__attribute__((noinline)) void add_block(const float* weights, const C* values, size_t dim, int count, intptr_t ahead,
                                         const float* factors, float* sums, size_t sum_stride) {
  size_t d = 0;
  for (; d + 4 * kLanes <= dim; d += 4 * kLanes)
    add_values<C, Q, 2>(weights, values + d, dim, count, 0, ahead, factors, sums + d, sum_stride);
  for (; d + 2 * kLanes <= dim; d += 2 * kLanes)
    add_values<C, Q, 1>(weights, values + d, dim, count, 0, ahead, factors, sums + d, sum_stride);
  if (d < dim) add_values<C, Q, 1>(weights, values + d, dim, count, int(dim - d), ahead, factors, sums + d, sum_stride);
}

// Scaled scores [rows, kBlockKeys] of all queries with `count` keys. Tiles at the ends repeat the last key or query.
template <typename C>
__attribute__((noinline)) void score_block(const float* queries, size_t width, int rows, const C* keys, size_t dim,
                                           int count, intptr_t ahead, float scale, float* scores) {
  for (int t = 0; t < count; t += kKeys) {
    const C* k[kKeys];
    for (int j = 0; j < kKeys; ++j) k[j] = keys + (t + j < count ? t + j : count - 1) * dim;
    for (int row = 0; row < rows; row += kQueries) {
      const float* q[kQueries];
      for (int i = 0; i < kQueries; ++i) q[i] = queries + (row + i < rows ? row + i : rows - 1) * width;
      vf32 sums[kLanes];
      MLXTS_UNROLL
      for (int i = 0; i < kLanes; ++i) sums[i] = vf32{};
      add_dots(q, k, dim, sums, [ahead](const C* from) { prefetch(from, ahead); });
      float tile[kLanes];
      store(tile, reduce_add_all(sums) * splat(scale));
      for (int i = 0; i < kQueries && row + i < rows; ++i)
        memcpy(scores + (row + i) * kBlockKeys + t, tile + i * kKeys, kKeys * sizeof(float));
    }
  }
}

// A piece of a key/value head's cache, and the query rows that share the head.
template <typename X, typename C>
struct Piece {
  const SdpaPiecesParams& p;
  const SdpaPiecesScratch& scratch;
  QueryRows queries;
  size_t begin, end;  // of the keys

  int rows() const { return int(queries.rows); }
  Softmax softmax() const { return {scratch.maxima, scratch.denominators}; }

  void load_queries(const X* q) const {
    for (int row = 0; row < rows(); ++row) {
      to_load_order<C>(q + queries.address(row), p.dim, scratch.queries + row * p.width);
      memset(scratch.sums + row * p.width, 0, p.width * sizeof(float));
      softmax().clear(row);
    }
  }

  // The block of keys from `key` on. `keys` and `values` are those of the whole cache.
  void attend(const C* keys, const C* values, size_t key) const {
    const int count = int(end - key < kBlockKeys ? end - key : kBlockKeys);
    const intptr_t to_values = reinterpret_cast<const char*>(values) - reinterpret_cast<const char*>(keys);
    const intptr_t to_keys = intptr_t(kBlockKeys * p.dim * sizeof(C)) - to_values;
    score_block(scratch.queries, p.width, rows(), keys + key * p.dim, p.dim, count, to_values, p.scale,
                scratch.scores);
    for (int row = 0, some; row < rows(); row += some) {
      some = rows() - row >= kQueries ? kQueries : 1;
      int counts[kQueries];
      float factors[kSoftmaxRows];
      for (int r = 0; r < some; ++r) counts[r] = seen(key, count, row + r);
      float* scores = scratch.scores + row * kBlockKeys;
      softmax_rows(scores, kBlockKeys, row, some, counts, 1.0f, softmax(), factors, scores);
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
    const float* weights = scratch.scores + row * kBlockKeys;
    float* sums = scratch.sums + row * p.width;
    const int common = counts[0];
    const auto add = some == 1 ? add_block<C, 1> : add_block<C, kQueries>;
    add(weights, values, p.dim, common, ahead, factors, sums, p.width);
    for (int r = 0; r < some; ++r)
      if (counts[r] > common)
        add_block<C, 1>(weights + r * kBlockKeys + common, values + common * p.dim, p.dim, counts[r] - common, 0,
                        &kWhole, sums + r * p.width, p.width);
  }

  void store_rows(float* partial) const {
    for (int row = 0; row < rows(); ++row, partial += partial_size(p.dim)) {
      partial[0] = scratch.maxima[row];
      partial[1] = scratch.denominators[row];
      from_load_order<C>(scratch.sums + row * p.width, p.dim, partial + SDPA_PIECES_SOFTMAX_SIZE);
    }
  }
};

template <typename X, typename C>
int32_t sdpa_pieces(const Launch& l) {
  const auto& p = l.args<SdpaPiecesParams>();
  const auto scratch = scratch_of(l, p);
  const Indices lengths = l.indices(SDPA_PIECES_LENGTHS);
  const size_t least = least_length(p), pieces = l.threadgroups[0];
  const LengthFaults codes = {SDPA_PIECES_FAULT_LENGTH, SDPA_PIECES_FAULT_NEW_ROWS};
  if (!lengths_right(lengths, p.batch, least, p.capacity, l, codes)) return 1;
  for (uint64_t group = l.begin; group < l.end; ++group) {
    const size_t at = group % pieces, head = group / pieces % p.kvHeads, b = group / pieces / p.kvHeads;
    const size_t length = length_at(lengths, b, least, p.capacity), begin = at * piece_keys(length);
    if (begin >= length) continue;
    const size_t end = length - begin < piece_keys(length) ? length : begin + piece_keys(length);
    const Piece<X, C> piece = {p, scratch, query_rows(p, b, head, length), begin, end};
    const size_t cache = cache_row(b, head, p.kvHeads, p.capacity, 0) * p.dim;
    const C* keys = l.buffer<const C>(SDPA_PIECES_K_CACHE) + cache;
    const C* values = l.buffer<const C>(SDPA_PIECES_V_CACHE) + cache;
    piece.load_queries(l.buffer<const X>(SDPA_PIECES_Q));
    for (size_t key = begin; key < end; key += kBlockKeys) piece.attend(keys, values, key);
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
MLXTS_KERNEL(sdpa_pieces_bf16_bf16, sdpa_pieces<bf16, bf16>)
