// A threadgroup has a piece of a sequence's cache, and a tile of its query rows, heads within tokens. It writes the
// maximum, the denominator and the sums of each row. Of a block of keys each simdgroup scores eight; then the simdgroups
// share the rows, for the softmax; then each adds the latents of its own columns. So a tile reads every latent as a key
// once and as a value once, straight from the cache. All sums and factors are floats.
#include "latent_tile.h"
#include "metal_matrix.h"

using namespace metal;
using namespace mlxts;

constant constexpr uint kBlockKeys = MLA_PIECES_BLOCK_KEYS, kSimdgroups = MLA_PIECES_SIMDGROUPS;
constant constexpr uint kScoreStride = MLA_PIECES_SCORE_STRIDE;
static_assert(kBlockKeys == 8 * kSimdgroups, "each simdgroup scores eight keys of a block");
static_assert(kBlockKeys == 2 * kSimd, "a lane has two scores of a row");
constant constexpr int kRowFragments = MLA_PIECES_TILE_ROWS / 8;
// Columns of a simdgroup go by strips of 16, of which a lane has 4 neighbors of a row, in two fragments.
constant constexpr uint kStrip = 16;
constant constexpr int kStrips = MLA_PIECES_TILE_COLUMNS / MLA_PIECES_SIMDGROUPS / kStrip;

// What a simdgroup keeps of a tile: the sums of all rows in its columns, and the softmax of every eighth row.
struct AttentionState {
  simdgroup_float8x8 sums[kRowFragments][2 * kStrips];
  float maximum[kRowFragments], denominator[kRowFragments];
};

// How many strips a simdgroup has in the pass from `column` on, and a lane's first column of a strip.
METAL_FUNC uint strips(uint rank, uint column) {
  constexpr uint kAll = kStrip * kSimdgroups;
  return (min(rank - column, uint(MLA_PIECES_TILE_COLUMNS)) + kAll - 1) / kAll;
}
METAL_FUNC uint strip_column(uint rank, uint column, uint strip, uint lane, uint simdgroup) {
  return column + (simdgroup * strips(rank, column) + strip) * kStrip + 2 * matrix_column(lane);
}

// Adds the products of eight keys with all rows over `dim` columns. Fragments take 32 columns at a time in the order 0, 4,
// 8 …, 1, 5, 9 …, so that a lane reads neighbors.
template <typename X, typename C>
METAL_FUNC void add_scores(thread simdgroup_float8x8 (&sums)[kRowFragments], device const X* q, device const C* keys,
                           uint stride, uint dim, thread const Tile& tile, uint key, uint lane) {
  const uint row = matrix_row(lane), column = matrix_column(lane);
  const int used = (tile.rows + 7) / 8;
  for (uint d = 0; d < dim; d += 32) {
    simdgroup_float8x8 k[4], x[4];
    MLXTS_UNROLL for (uint e = 0; e < 2; ++e) {
      const uint at = d + 4 * row, count = key + column + e < tile.end ? left(at, dim) : 0;
      const float4 v = load_some(keys + ulong(key + column + e) * stride + at, count);
      MLXTS_UNROLL for (int j = 0; j < 4; ++j) k[j].thread_elements()[e] = v[j];
    }
    MLXTS_UNROLL for (int i = 0; i < kRowFragments; ++i) {
      if (i >= used) continue;
      MLXTS_UNROLL for (uint e = 0; e < 2; ++e) {
        const uint at = d + 4 * (column + e), count = i * 8 + row < tile.rows ? left(at, dim) : 0;
        const float4 v = load_some(q + ulong(tile.first + i * 8 + row) * dim + at, count);
        MLXTS_UNROLL for (int j = 0; j < 4; ++j) x[j].thread_elements()[e] = v[j];
      }
      MLXTS_UNROLL for (int j = 0; j < 4; ++j) simdgroup_multiply_accumulate(sums[i], x[j], k[j], sums[i]);
    }
  }
}

// The scores of a row with the block's keys, of which a lane has two, become exp(scale · score − maximum), and 0 for keys
// that it does not see. Returns the factor for the row's earlier sums.
METAL_FUNC float softmax_row(threadgroup float* scores, bool first_seen, bool second_seen, float scale,
                             thread float& maximum, thread float& denominator, uint lane) {
  const float a = first_seen ? scores[lane] * scale : -INFINITY;
  const float b = second_seen ? scores[lane + kSimd] * scale : -INFINITY;
  const float now = max(maximum, simd_max(max(a, b)));
  // Where the maximum is −∞, any base gives exp(−∞) = 0.
  const float base = now == -INFINITY ? 0.0f : now;
  const float factor = precise::exp(maximum - base);
  const float first = precise::exp(a - base), second = precise::exp(b - base);
  scores[lane] = first;
  scores[lane + kSimd] = second;
  maximum = now;
  denominator = denominator * factor + simd_sum(first + second);
  return factor;
}

// Adds the weighted latents of a block. Keys that all rows see are multiplied as fragments, with zeros for latents beyond
// them. Of the other keys a row takes only those that it sees, one by one: in a fragment, 0 · NaN would be NaN.
template <typename C>
METAL_FUNC void add_latents(device const C* latents, threadgroup const float* weights, thread const Tile& tile,
                            uint block, uint column, constant MlaPiecesParams& p, thread AttentionState& state,
                            uint lane, uint simdgroup) {
  const uint row = matrix_row(lane), from = matrix_column(lane), rank = p.rank;
  const int used = (tile.rows + 7) / 8, wide = strips(rank, column);
  const uint all = min(kBlockKeys, left(block, tile.common())), some = min(kBlockKeys, left(block, tile.end));
  uint columns[kStrips];
  MLXTS_UNROLL for (int s = 0; s < kStrips; ++s) columns[s] = strip_column(rank, column, s, lane, simdgroup);
  for (uint t = 0; t < all; t += 8) {
    simdgroup_float8x8 v[2 * kStrips], w;
    MLXTS_UNROLL for (int s = 0; s < kStrips; ++s) {
      if (s >= wide) continue;
      const uint count = t + row < all ? left(columns[s], rank) : 0;
      const float4 x = load_some(latents + ulong(block + t + row) * p.latentStride + columns[s], count);
      v[2 * s].thread_elements() = float2(x.x, x.y);
      v[2 * s + 1].thread_elements() = float2(x.z, x.w);
    }
    MLXTS_UNROLL for (int i = 0; i < kRowFragments; ++i) {
      if (i >= used) continue;
      threadgroup const float* at = weights + (i * 8 + row) * kScoreStride + t + from;
      w.thread_elements() = float2(at[0], at[1]);
      MLXTS_UNROLL for (int s = 0; s < 2 * kStrips; ++s) if (s < 2 * wide)
          simdgroup_multiply_accumulate(state.sums[i][s], w, v[s], state.sums[i][s]);
    }
  }
  for (uint t = all; t < some; ++t) MLXTS_UNROLL for (int s = 0; s < kStrips; ++s) {
      if (s >= wide) continue;
      const float4 x = load_some(latents + ulong(block + t) * p.latentStride + columns[s], left(columns[s], rank));
      MLXTS_UNROLL for (int i = 0; i < kRowFragments; ++i) {
        if (!tile.sees(i * 8 + row, block + t)) continue;
        const float w = weights[(i * 8 + row) * kScoreStride + t];
        thread float2& a = state.sums[i][2 * s].thread_elements();
        thread float2& b = state.sums[i][2 * s + 1].thread_elements();
        a = fma(float2(w), float2(x.x, x.y), a);
        b = fma(float2(w), float2(x.z, x.w), b);
      }
    }
}

// A sequence's operands.
template <typename X, typename C>
struct Operands {
  device const float* queries;
  device const X* q_pe;
  device const C* latents;
  device const C* rotated;
};

// The scores of a block's keys with all rows; each simdgroup makes those of eight keys.
template <typename X, typename C>
METAL_FUNC void score(thread const Operands<X, C>& from, thread const Tile& tile, uint block,
                      constant MlaPiecesParams& p, threadgroup float* scores, uint lane, uint simdgroup) {
  const uint key = block + simdgroup * 8, row = matrix_row(lane), column = simdgroup * 8 + matrix_column(lane);
  if (key >= tile.end) return;
  simdgroup_float8x8 sums[kRowFragments];
  MLXTS_UNROLL for (int i = 0; i < kRowFragments; ++i) sums[i] = simdgroup_float8x8(0.0f);
  add_scores(sums, from.queries, from.latents, p.latentStride, p.rank, tile, key, lane);
  add_scores(sums, from.q_pe, from.rotated, p.ropeStride, p.rope, tile, key, lane);
  MLXTS_UNROLL for (int i = 0; i < kRowFragments; ++i) if (i < int(tile.rows + 7) / 8)
      MLXTS_UNROLL for (uint e = 0; e < 2; ++e) scores[(i * 8 + row) * kScoreStride + column + e] =
          sums[i].thread_elements()[e];
}

// A pass over all keys for the columns from `column` on. `next`: the array of scores to be filled, 0 or 1.
template <typename X, typename C>
METAL_FUNC void attend(thread const Operands<X, C>& from, thread const Tile& tile, uint column,
                       constant MlaPiecesParams& p, MlaPiecesScratch scratch, thread uint& next,
                       thread AttentionState& state, uint lane, uint simdgroup) {
  const int used = (tile.rows + 7) / 8;
  MLXTS_UNROLL for (int i = 0; i < kRowFragments; ++i) {
    state.maximum[i] = -INFINITY;
    state.denominator[i] = 0.0f;
    MLXTS_UNROLL for (int s = 0; s < 2 * kStrips; ++s) state.sums[i][s] = simdgroup_float8x8(0.0f);
  }
  const bool idle = strip_column(p.rank, column, 0, 0, simdgroup) >= p.rank;
  for (uint block = tile.begin; block < tile.end; block += kBlockKeys) {
    threadgroup float* scores = next ? scratch.scores1 : scratch.scores0;
    next ^= 1;
    score(from, tile, block, p, scores, lane, simdgroup);
    threadgroup_barrier(mem_flags::mem_threadgroup);
    MLXTS_UNROLL for (int i = 0; i < kRowFragments; ++i) {
      if (i >= used) continue;
      const uint row = i * 8 + simdgroup;
      const bool first_seen = tile.sees(row, block + lane), second_seen = tile.sees(row, block + lane + kSimd);
      const float factor = softmax_row(scores + row * kScoreStride, first_seen, second_seen, p.scale,
                                       state.maximum[i], state.denominator[i], lane);
      if (lane == 0) scratch.factors[row] = factor;
    }
    threadgroup_barrier(mem_flags::mem_threadgroup);
    if (idle) continue;
    MLXTS_UNROLL for (int i = 0; i < kRowFragments; ++i) {
      if (i >= used) continue;
      const float factor = scratch.factors[i * 8 + matrix_row(lane)];
      MLXTS_UNROLL for (int s = 0; s < 2 * kStrips; ++s) state.sums[i][s].thread_elements() *= factor;
    }
    add_latents(from.latents, scores, tile, block, column, p, state, lane, simdgroup);
  }
}

// The sums of a simdgroup's columns, each row's behind its softmax.
METAL_FUNC void store_sums(thread AttentionState& state, device float* to, uint rows, uint rank, uint column, uint lane,
                           uint simdgroup) {
  MLXTS_UNROLL for (int i = 0; i < kRowFragments; ++i) {
    const uint row = i * 8 + matrix_row(lane);
    if (row >= rows) continue;
    device float* sums = to + ulong(row) * partial_size(rank) + MLA_PIECES_SOFTMAX_SIZE;
    MLXTS_UNROLL for (int s = 0; s < kStrips; ++s) {
      if (s >= int(strips(rank, column))) continue;
      const uint at = strip_column(rank, column, s, lane, simdgroup);
      thread const float2& a = state.sums[i][2 * s].thread_elements();
      thread const float2& b = state.sums[i][2 * s + 1].thread_elements();
      const float4 four = float4(a.x, a.y, b.x, b.y);
      for (uint c = 0; c < min(left(at, rank), 4u); ++c) sums[at + c] = four[c];
    }
  }
}

template <typename X, typename C>
kernel void mla_pieces(device const float* queries [[buffer(MLA_PIECES_QUERIES)]],
                       device const X* q_pe [[buffer(MLA_PIECES_Q_PE)]],
                       device const C* latents [[buffer(MLA_PIECES_LATENT_CACHE)]],
                       device const C* rotated [[buffer(MLA_PIECES_K_PE_CACHE)]],
                       device const Index* lengths [[buffer(MLA_PIECES_LENGTHS)]],
                       device const uint* mask [[buffer(MLA_PIECES_TREE_MASK)]],
                       device float* partial [[buffer(MLA_PIECES_PARTIAL)]],
                       constant MlaPiecesParams& p [[buffer(MLA_PIECES_PARAMS)]],
                       device MlxtsFault* fault [[buffer(MLA_PIECES_FAULT)]],
                       threadgroup uchar* memory [[threadgroup(0)]], uint3 group [[threadgroup_position_in_grid]],
                       uint index [[thread_index_in_threadgroup]], uint lane [[thread_index_in_simdgroup]],
                       uint simdgroup [[simdgroup_index_in_threadgroup]]) {
  const MlaPiecesScratch scratch = scratch_of(memory, p);
  const uint piece = group.x, sequence = group.z, rows = p.tokens * p.heads, first = group.y * MLA_PIECES_TILE_ROWS;
  const Tile tile = tile_of(p, lengths, mask, FaultSearch{fault, lane},
                            {MLA_PIECES_FAULT_LENGTH, MLA_PIECES_FAULT_NEW_ROWS}, scratch.length, piece, sequence, first,
                            MLA_PIECES_TILE_ROWS, index);
  if (!tile.exists) return;
  const ulong row = ulong(sequence) * rows, cache_row = ulong(sequence) * p.sequenceStride;
  const Operands<X, C> from = {queries + row * p.rank, q_pe + row * p.rope, latents + cache_row * p.latentStride,
                               rotated + cache_row * p.ropeStride};
  device float* to = partial + partial_address(sequence, piece, p.pieces, first, rows, p.rank);
  AttentionState state;
  uint next = 0;
  for (uint column = 0; column < p.rank; column += MLA_PIECES_TILE_COLUMNS) {
    attend(from, tile, column, p, scratch, next, state, lane, simdgroup);
    store_sums(state, to, tile.rows, p.rank, column, lane, simdgroup);
  }
  MLXTS_UNROLL for (int i = 0; i < kRowFragments; ++i) {
    const uint r = i * 8 + simdgroup;
    if (lane > 0 || r >= tile.rows) continue;
    device float* softmax = to + ulong(r) * partial_size(p.rank);
    softmax[0] = state.maximum[i];
    softmax[1] = state.denominator[i];
  }
}

#define MLA_PIECES(name, X, C) \
  template [[host_name("mla_pieces_" name)]] [[kernel]] decltype(mla_pieces<X, C>) mla_pieces<X, C>;
MLA_PIECES("f32_f32", float, float)
MLA_PIECES("f32_f16", float, half)
MLA_PIECES("f32_bf16", float, bfloat)
MLA_PIECES("f16_f32", half, float)
MLA_PIECES("f16_f16", half, half)
MLA_PIECES("f16_bf16", half, bfloat)
MLA_PIECES("bf16_f32", bfloat, float)
MLA_PIECES("bf16_f16", bfloat, half)
MLA_PIECES("bf16_bf16", bfloat, bfloat)
