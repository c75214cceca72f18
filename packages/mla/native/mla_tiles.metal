// Many query rows over a cache of f16 or bf16, to which queries and weights are rounded. A threadgroup has some query rows
// and a piece of the cache, of which a block of keys at a time goes through threadgroup memory, once for scores and sums.
// Each simdgroup keeps some columns of some queries, and makes what these add to the scores; then each one has the weights
// of all rows, and sums in columns of its own. Sums and factors are floats.
#include "latent_tile.h"
#include "metal_attention.h"
#include "mla_tiles.params.h"

using namespace metal;
using namespace mlxts;

static_assert(MLA_TILES_HAS_TREE_MASK == MLA_PIECES_HAS_TREE_MASK, "both kernels have the same buffers");
constant constexpr uint kThreads = MLA_TILES_THREADS, kRows = MLA_TILES_TILE_ROWS, kKeys = MLA_TILES_TILE_KEYS;
constant constexpr uint kRank = MLA_TILES_MOST_RANK, kRope = MLA_TILES_MOST_ROPE;
// For scores, a simdgroup has kScored rows, and the kShare-th part of the columns.
constant constexpr uint kScored = 16, kShare = kThreads / kSimd * kScored / kRows;
constant constexpr uint kOwnRank = kRank / kShare, kOwnRope = kRope / kShare;
constant constexpr uint kScoreStride = tile_stride<float>(kKeys);
// For sums, a simdgroup has all rows, and these columns.
constant constexpr uint kColumns = kRank / (kThreads / kSimd);

// A sequence's operands.
template <typename E>
struct Operands {
  device const float* queries;
  device const E* q_pe;
  device const E* latents;
  device const E* rotated;
};

// A block of the cache in threadgroup memory.
template <typename E>
struct Block {
  threadgroup E* latents;
  threadgroup E* rotated;
};

// A block on its way there.
template <typename E>
struct BlockCopy {
  TileCopy<E, E, kKeys, kRank, kThreads> latents;
  TileCopy<E, E, kKeys, kRope, kThreads> rotated;

  METAL_FUNC void start(thread const Operands<E>& from, constant MlaTilesParams& p, uint key, uint end,
                        uint index) thread {
    latents.start(from.latents + ulong(key) * p.latentStride, p.latentStride, left(key, end), p.rank, index);
    rotated.start(from.rotated + ulong(key) * p.ropeStride, p.ropeStride, left(key, end), p.rope, index);
  }
  METAL_FUNC void finish(thread const Block<E>& block, uint index) const thread {
    latents.finish(block.latents, index);
    rotated.finish(block.rotated, index);
  }
};

// The columns of queries, of which a row has `dim`, from `columns` on, in a tile's rows from `row` on.
template <typename X>
struct QueryColumns {
  device const X* columns;
  uint dim;
  thread const Tile& tile;
  uint row;

  METAL_FUNC device const X* operator()(uint r) const thread {
    return columns + ulong(tile.first + min(row + r, tile.rows - 1)) * dim;
  }
};

// What a simdgroup makes of scores: `row` and `part` are its rows and its part of the columns.
template <typename E>
struct Scorer {
  uint row, part;
  TileLeft<E, kScored, kOwnRank> queries;
  TileLeft<E, kScored, kOwnRope> q_pe;

  METAL_FUNC void load(thread const Operands<E>& from, constant MlaTilesParams& p, thread const Tile& tile,
                       uint lane) thread {
    const uint column = part * kOwnRank, turned = part * kOwnRope;
    if (column < p.rank)
      queries = load_queries<E, kScored, kOwnRank>(QueryColumns<float>{from.queries + column, p.rank, tile, row},
                                                   p.rank - column, lane);
    if (turned < p.rope)
      q_pe = load_queries<E, kScored, kOwnRope>(QueryColumns<E>{from.q_pe + turned, p.rope, tile, row}, p.rope - turned,
                                                lane);
  }
  // To scores [kShare, kRows, kScoreStride].
  METAL_FUNC void score(thread const Block<E>& block, constant MlaTilesParams& p, threadgroup float* scores,
                        uint lane) const thread {
    TileSum<kScored, kKeys> sum;
    fill(sum, 0.0f);
    const uint column = part * kOwnRank, turned = part * kOwnRope;
    add_scores(sum, queries, block.latents + column, left(column, p.rank), tile_stride<E>(kRank));
    add_scores(sum, q_pe, block.rotated + turned, left(turned, p.rope), tile_stride<E>(kRope));
    store(sum, scores + (part * kRows + row) * kScoreStride, kScoreStride, lane);
  }
};

// The scores of the keys from `key` on: the sum of their parts, −∞ for keys that a row does not see.
METAL_FUNC TileSum<kRows, kKeys> load_scores(threadgroup const float* parts, thread const Tile& tile, uint key,
                                             uint lane) {
  TileSum<kRows, kKeys> scores;
  load(scores, parts, kScoreStride, lane);
  for (uint part = 1; part < kShare; ++part) {
    TileSum<kRows, kKeys> more;
    load(more, parts + part * kRows * kScoreStride, kScoreStride, lane);
    MLXTS_UNROLL for (uint r = 0; r < kRows / 8; ++r) {
      MLXTS_UNROLL for (uint i = 0; i < kKeys / 4; ++i) scores.at(r, i / 2, i % 2) += more.at(r, i / 2, i % 2);
    }
  }
  if (key + kKeys <= tile.common()) return scores;
  MLXTS_UNROLL for (uint r = 0; r < kRows / 8; ++r) {
    MLXTS_UNROLL for (uint i = 0; i < kKeys / 4; ++i) {
      const uint own = key + 8 * (i / 2) + matrix_column(lane) + i % 2;
      if (!tile.sees(8 * r + matrix_row(lane), own)) scores.at(r, i / 2, i % 2) = -INFINITY;
    }
  }
  return scores;
}

// A simdgroup's columns of the sums of all rows.
typedef AttentionRows<kRows, kColumns> OwnRows;

// All keys of a tile's piece.
template <typename E>
METAL_FUNC void attend(thread const Operands<E>& from, thread const Tile& tile, constant MlaTilesParams& p,
                       thread const Block<E>& block, threadgroup float* scores, thread OwnRows& state,
                       uint simdgroup, uint lane, uint index) {
  const uint column = simdgroup * kColumns, all_seen = tile.common();
  Scorer<E> scorer = {simdgroup / kShare * kScored, simdgroup % kShare, {}, {}};
  scorer.load(from, p, tile, lane);
  BlockCopy<E> copy;
  copy.start(from, p, tile.begin, tile.end, index);
  for (uint key = tile.begin; key < tile.end; key += kKeys) {
    threadgroup_barrier(mem_flags::mem_threadgroup);  // nobody reads the block before
    copy.finish(block, index);
    threadgroup_barrier(mem_flags::mem_threadgroup);
    copy.start(from, p, key + kKeys, tile.end, index);
    scorer.score(block, p, scores, lane);
    threadgroup_barrier(mem_flags::mem_threadgroup);
    TileSum<kRows, kKeys> own = load_scores(scores, tile, key, lane);
    TileLeft<E, kRows, kKeys> weights = softmax<E>(own, state, max(p.scale, FLT_MIN));  // 0 · −∞ is no score
    threadgroup const E* values = block.latents + column;
    // Rows of the cache that only some rows see may hold anything.
    if (min(key + kKeys, tile.end) <= all_seen)
      add_values<kColumns>(state, 0, weights, values, left(column, p.rank), tile_stride<E>(kRank));
    else
      add_seen_values<kColumns>(state, 0, weights, values, tile, key, lane, tile_stride<E>(kRank));
  }
}

// The rows' sums in the simdgroup's columns, behind each row's softmax: weights are 2 to the kMost-th times those of its
// maximum.
template <typename E>
METAL_FUNC void store_rows(thread OwnRows& state, device float* to, uint rows, constant MlaTilesParams& p,
                           uint simdgroup, uint lane) {
  const uint first = simdgroup * kColumns + matrix_column(lane);
  MLXTS_UNROLL for (uint r = 0; r < kRows / 8; ++r) {
    const uint row = 8 * r + matrix_row(lane);
    const float denominator = row_sum(state.denominators[r]);
    if (row >= rows) continue;
    device float* own = to + ulong(row) * partial_size(p.rank);
    store_row(state, r, 1.0f, own + MLA_PIECES_SOFTMAX_SIZE + first, left(first, p.rank));
    if (first > 0) continue;
    own[0] = denominator == 0.0f ? -INFINITY : state.maxima[r] * p.scale - Power<E>::kMost / Power<E>::kScale;
    own[1] = denominator;
  }
}

template <typename E>
kernel void mla_tiles(device const float* queries [[buffer(MLA_TILES_QUERIES)]],
                      device const E* q_pe [[buffer(MLA_TILES_Q_PE)]],
                      device const E* latents [[buffer(MLA_TILES_LATENT_CACHE)]],
                      device const E* rotated [[buffer(MLA_TILES_K_PE_CACHE)]],
                      device const Index* lengths [[buffer(MLA_TILES_LENGTHS)]],
                      device const uint* mask [[buffer(MLA_TILES_TREE_MASK)]],
                      device float* partial [[buffer(MLA_TILES_PARTIAL)]],
                      constant MlaTilesParams& p [[buffer(MLA_TILES_PARAMS)]],
                      device MlxtsFault* fault [[buffer(MLA_TILES_FAULT)]], threadgroup uchar* memory [[threadgroup(0)]],
                      uint3 group [[threadgroup_position_in_grid]], uint index [[thread_index_in_threadgroup]],
                      uint lane [[thread_index_in_simdgroup]], uint simdgroup [[simdgroup_index_in_threadgroup]]) {
  const MlaTilesScratch scratch = scratch_of(memory, p);
  const uint piece = group.x, sequence = group.z, rows = p.tokens * p.heads;
  const Tile tile =
      tile_of(p, lengths, mask, FaultSearch{fault, lane}, {MLA_TILES_FAULT_LENGTH, MLA_TILES_FAULT_NEW_ROWS},
              scratch.length, piece, sequence, group.y * kRows, kRows, index);
  if (!tile.exists) return;
  const ulong row = ulong(sequence) * rows, cache_row = ulong(sequence) * p.sequenceStride;
  const Operands<E> from = {queries + row * p.rank, q_pe + row * p.rope, latents + cache_row * p.latentStride,
                            rotated + cache_row * p.ropeStride};
  const Block<E> block = {(threadgroup E*)scratch.latents, (threadgroup E*)scratch.rotated};
  OwnRows state = {};
  clear(state);
  attend(from, tile, p, block, scratch.scores, state, simdgroup, lane, index);
  device float* to = partial + partial_address(sequence, piece, p.pieces, tile.first, rows, p.rank);
  store_rows<E>(state, to, tile.rows, p, simdgroup, lane);
}

#define MLA_TILES(name, E) template [[host_name("mla_tiles_" name)]] [[kernel]] decltype(mla_tiles<E>) mla_tiles<E>;
MLA_TILES("f16", half)
MLA_TILES("bf16", bfloat)
