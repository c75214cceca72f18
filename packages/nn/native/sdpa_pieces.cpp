// One threadgroup: one piece of one key/value head's cache, for all query rows that share the head. Each row of the
// cache is read from memory once: a block of keys meets the queries in tiles of dot products, then the block's values.
#include "attention.h"
#include "matrix_reduce.h"
#include "sdpa_pieces.params.h"

using namespace mlxts;

namespace {

// Keys × queries of a dot tile: as many sums as a vector has lanes, so that one reduction ends them all.
constexpr int kQueries = kLanes == 16 ? 4 : 2, kKeys = kLanes / kQueries;

constexpr float kWhole = 1;  // the factor that keeps what a row's sums had

// Keys and values of a block are short runs in two places: while one is read the other's next run is fetched.
template <typename C>
MLXTS_INLINE void prefetch(const C* from, intptr_t ahead) {
  for (size_t line = 0; line < 2 * kLanes * sizeof(C); line += 64)
    __builtin_prefetch(reinterpret_cast<const char*>(from) + ahead + line);
}

// scores[i][j] = queries[i] · keys[j] for kQueries × kKeys rows; rows that repeat are computed and not stored.
template <typename C>
MLXTS_INLINE void dot_tile(const float* const (&queries)[kQueries], const C* const (&keys)[kKeys], size_t dim,
                           intptr_t ahead, float (&scores)[kLanes]) {
  vf32 sum[kLanes];
#pragma GCC unroll 16
  for (int i = 0; i < kLanes; ++i) sum[i] = vf32{};
  const auto step = [&](size_t d, auto get) {
    vf32 a[kKeys], b[kKeys];
#pragma GCC unroll 4
    for (int j = 0; j < kKeys; ++j) get(keys[j] + d, a[j], b[j]);
#pragma GCC unroll 4
    for (int i = 0; i < kQueries; ++i) {
      const vf32 x = load(queries[i] + d), y = load(queries[i] + d + kLanes);
#pragma GCC unroll 4
      for (int j = 0; j < kKeys; ++j) {
        sum[i * kKeys + j] = fma(a[j], x, sum[i * kKeys + j]);
        sum[i * kKeys + j] = fma(b[j], y, sum[i * kKeys + j]);
      }
    }
  };
  size_t d = 0;
  for (; d + 2 * kLanes <= dim; d += 2 * kLanes)
    step(d, [&](const C* from, vf32& a, vf32& b) {
      prefetch(from, ahead);
      load_two(from, a, b);
    });
  if (d < dim) step(d, [&](const C* from, vf32& a, vf32& b) { load_two_partial(from, int(dim - d), a, b); });
  store(scores, reduce_add_all(sum));
}

// sums[i] = factors[i] · sums[i] + Σ_t weights[i][t] · values[t] over `count` rows, for Q queries and 2·W
// vectors (or `tail` elements).
template <typename C, int Q, int W>
MLXTS_INLINE void add_values(const float* weights, const C* values, size_t dim, int count, int tail, intptr_t ahead,
                             const float* factors, float* sums, size_t sumStride) {
  vf32 sum[Q][2 * W];
#pragma GCC unroll 4
  for (int i = 0; i < Q; ++i)
#pragma GCC unroll 4
    for (int v = 0; v < 2 * W; ++v) sum[i][v] = load(sums + i * sumStride + v * kLanes) * splat(factors[i]);
  const auto add = [&](int t, auto get) {
    vf32 value[2 * W];
#pragma GCC unroll 2
    for (int w = 0; w < W; ++w) get(values + t * dim + w * 2 * kLanes, value[2 * w], value[2 * w + 1]);
#pragma GCC unroll 4
    for (int i = 0; i < Q; ++i) {
      const vf32 weight = splat(weights[i * kBlockKeys + t]);
#pragma GCC unroll 4
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
#pragma GCC unroll 4
  for (int i = 0; i < Q; ++i)
#pragma GCC unroll 4
    for (int v = 0; v < 2 * W; ++v) store(sums + i * sumStride + v * kLanes, sum[i][v]);
}

// The same for a whole row of values.
template <typename C, int Q>
__attribute__((noinline)) void add_block(const float* weights, const C* values, size_t dim, int count, intptr_t ahead,
                                         const float* factors, float* sums, size_t sumStride) {
  size_t d = 0;
  for (; d + 4 * kLanes <= dim; d += 4 * kLanes)
    add_values<C, Q, 2>(weights, values + d, dim, count, 0, ahead, factors, sums + d, sumStride);
  for (; d + 2 * kLanes <= dim; d += 2 * kLanes)
    add_values<C, Q, 1>(weights, values + d, dim, count, 0, ahead, factors, sums + d, sumStride);
  if (d < dim) add_values<C, Q, 1>(weights, values + d, dim, count, int(dim - d), ahead, factors, sums + d, sumStride);
}

template <typename C>
__attribute__((noinline)) void score_block(const float* queries, size_t width, int rows, const C* keys, size_t dim,
                                           int count, intptr_t ahead, float* scores) {
  for (int t = 0; t < count; t += kKeys) {
    const C* k[kKeys];
    for (int j = 0; j < kKeys; ++j) k[j] = keys + (t + j < count ? t + j : count - 1) * dim;
    for (int row = 0; row < rows; row += kQueries) {
      const float* q[kQueries];
      for (int i = 0; i < kQueries; ++i) q[i] = queries + (row + i < rows ? row + i : rows - 1) * width;
      float tile[kLanes];
      dot_tile(q, k, dim, ahead, tile);
      for (int i = 0; i < kQueries && row + i < rows; ++i)
        memcpy(scores + (row + i) * kBlockKeys + t, tile + i * kKeys, kKeys * sizeof(float));
    }
  }
}

template <typename X, typename C>
int32_t sdpa_pieces(const Launch& l) {
  const auto& p = l.args<SdpaPiecesParams>();
  const X* q = l.buffer<const X>(SDPA_PIECES_Q);
  const Indices lengths = l.indices(SDPA_PIECES_LENGTHS);
  if (const int32_t failed = check_lengths<SDPA_PIECES_FAULT_LENGTH, SDPA_PIECES_FAULT_NEW_ROWS>(l, p, lengths))
    return failed;

  const size_t dim = p.dim, width = (dim + 63) / 64 * 64;
  const size_t share = p.heads / p.kvHeads;
  const int rows = int(p.tokens * share);
  float* queries = static_cast<float*>(l.scratch);                                   // [rows][width]
  float* sums = queries + rows * width;                                              // [rows][width]
  float* scores = sums + rows * width;                                               // [rows][64]
  Softmax* states = reinterpret_cast<Softmax*>(scores + size_t(rows) * kBlockKeys);  // [rows]

  for (uint64_t group = l.begin; group < l.end; ++group) {
    const size_t piece = group % l.threadgroups[0], head = group / l.threadgroups[0] % p.kvHeads;
    const size_t b = group / l.threadgroups[0] / p.kvHeads;
    const size_t length = uint32_t(lengths.read(b)), begin = piece * piece_keys(length);
    if (const int32_t failed = check_length<SDPA_PIECES_FAULT_LENGTH, SDPA_PIECES_FAULT_NEW_ROWS>(l, p, length, b))
      return failed;
    if (begin >= length) continue;
    const size_t end = length - begin < piece_keys(length) ? length : begin + piece_keys(length);
    const C* keys = l.buffer<const C>(SDPA_PIECES_K_CACHE) + (b * p.kvHeads + head) * p.capacity * dim;
    const C* values = l.buffer<const C>(SDPA_PIECES_V_CACHE) + (b * p.kvHeads + head) * p.capacity * dim;
    const intptr_t toValues = reinterpret_cast<const char*>(values) - reinterpret_cast<const char*>(keys);
    const intptr_t toKeys = intptr_t(kBlockKeys * dim * sizeof(C)) - toValues;
    for (int row = 0; row < rows; ++row) {
      const size_t t = row / share, h = head * share + row % share;
      to_load_order<C>(q + ((b * p.tokens + t) * p.heads + h) * dim, dim, queries + row * width);
      memset(sums + row * width, 0, width * sizeof(float));
      states[row] = {};
    }
    for (size_t k0 = begin; k0 < end; k0 += kBlockKeys) {
      const int count = int(end - k0 < kBlockKeys ? end - k0 : kBlockKeys);
      // Keys of this block that a row sees.
      const auto seen = [&](int row) {
        if (!p.causal) return count;
        const size_t n = length - p.tokens + row / share + 1;
        return int(n <= k0 ? 0 : n - k0 < size_t(count) ? n - k0 : count);
      };
      score_block(queries, width, rows, keys + k0 * dim, dim, count, toValues, scores);
      for (int row = 0; row < rows;) {
        const int some = rows - row >= kQueries ? kQueries : 1, common = seen(row);
        int counts[kQueries];
        float factors[kSoftmaxRows];
        for (int r = 0; r < some; ++r) counts[r] = seen(row + r);
        softmax_rows(scores + row * kBlockKeys, some, counts, p.scale, states + row, factors);
        const auto add = some == 1 ? add_block<C, 1> : add_block<C, kQueries>;
        add(scores + row * kBlockKeys, values + k0 * dim, dim, common, toKeys, factors, sums + row * width, width);
        for (int r = 0; r < some; ++r)
          if (counts[r] > common)
            add_block<C, 1>(scores + (row + r) * kBlockKeys + common, values + (k0 + common) * dim, dim,
                            counts[r] - common, 0, &kWhole, sums + (row + r) * width, width);
        row += some;
      }
    }
    float* partial = l.buffer<float>(SDPA_PIECES_PARTIAL) + group * rows * (dim + 2);
    for (int row = 0; row < rows; ++row, partial += dim + 2) {
      memcpy(partial, &states[row], sizeof states[row]);
      from_load_order<C>(sums + row * width, dim, partial + 2);
    }
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
