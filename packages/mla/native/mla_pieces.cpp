// One threadgroup: a piece of a sequence's cache, for some of its query rows. A block of latents and rotated keys is packed
// once for all of them, as keys and as values; then kPanelRows rows at a time are scored, go through the online softmax
// and add the weighted latents.
#include "latent_softmax.h"
#include "matrix_pack.h"

using namespace mlxts;

namespace {

static_assert(kPanelRows == MLA_PIECES_PANEL_ROWS && MLA_PIECES_PANEL_COLUMNS % kPanelColumns == 0);

// Vectors of a panel that has `columns` columns to give.
int vectors_of(size_t columns) {
  const size_t vectors = (columns + kLanes - 1) / kLanes;
  return int(vectors < kTileVectors ? vectors : kTileVectors);
}

template <typename X, typename C>
struct RowGroup {
  static constexpr bool kBf16 = kHasBf16Dot && std::is_same_v<X, bf16> && std::is_same_v<C, bf16>;
  using P = std::conditional_t<kBf16, bf16x2, float>;  // an element of panels

  const MlaPiecesParams& p;
  const MlaPiecesScratch& scratch;
  Visible visible;
  size_t first;  // of the query rows
  int rows;
  const C* latents;  // of the sequence
  const C* rotated;

  Softmax softmax() const { return {scratch.maxima, scratch.denominators}; }
  size_t token(int row) const { return (first + row) / p.heads; }

  // A row of queries: its latent part, padded to a whole number of elements of panels, and behind it the rotated part.
  static size_t depth(size_t columns) { return (columns + kPerElement<P> - 1) / kPerElement<P>; }
  size_t key_depth() const { return depth(p.rank) + depth(p.rope); }
  size_t query_stride() const { return p.keyWidth * sizeof(float) / sizeof(Left<P>); }
  Left<P>* query(int row) const { return reinterpret_cast<Left<P>*>(scratch.queries) + row * query_stride(); }

  // Panels [key_depth, kPanelColumns] of a block's keys, and [kBlockKeys, kPanelColumns] of columns of its latents.
  P* key_panel(size_t key) const { return reinterpret_cast<P*>(scratch.keys) + key * key_depth(); }
  P* value_panel(size_t column) const { return reinterpret_cast<P*>(scratch.values) + column * depth(kBlockKeys); }

  template <typename T>
  static void load_part(const T* from, size_t columns, Left<P>* to) {
    convert_row(from, columns, to);
    if (kPerElement<P> == 2 && columns % 2) to[columns] = {};
  }
  void load_queries(const float* queries, const X* q_pe) const {
    for (int row = 0; row < rows; ++row) {
      load_part(queries + (first + row) * p.rank, p.rank, query(row));
      load_part(q_pe + (first + row) * p.rope, p.rope, query(row) + depth(p.rank) * kPerElement<P>);
      softmax().clear(row);
      memset(scratch.sums + row * p.width, 0, p.width * sizeof(float));
    }
  }

  // Packs `count` rows of the cache from `key` on.
  void pack_block(size_t key, int count) const {
    const C* c = latents + key * p.latentStride;
    const C* k_pe = rotated + key * p.ropeStride;
    const ptrdiff_t next = ptrdiff_t(kBlockKeys * p.latentStride), next_rope = ptrdiff_t(kBlockKeys * p.ropeStride);
    for (int j = 0; j < count; j += kPanelColumns) {
      P* panel = key_panel(j);
      pack_transposed(c + j * p.latentStride, p.latentStride, count - j, p.rank, next, panel);
      pack_transposed(k_pe + j * p.ropeStride, p.ropeStride, count - j, p.rope, next_rope,
                      panel + depth(p.rank) * kPanelColumns);
    }
    for (size_t d = 0; d < p.rank; d += kPanelColumns)
      pack(c + d, p.latentStride, int(p.rank - d), size_t(count), next, value_panel(d));
  }

  // How many of the `count` rows of the cache from `key` on lie before `end`.
  static int before(size_t end, size_t key, int count) {
    return int(end <= key ? 0 : end - key < size_t(count) ? end - key : count);
  }

  // The block of `count` rows of the cache from `key` on, for up to kPanelRows query rows.
  void attend(size_t key, int count, int row) const {
    const int some = rows - row < kPanelRows ? rows - row : kPanelRows;
    int counts[kPanelRows], most = 0, common = count;
    for (int r = 0; r < some; ++r) {
      counts[r] = before(visible.end(token(row + r)), key, count);
      const int all = before(visible.prefix(token(row + r)), key, count);
      most = counts[r] > most ? counts[r] : most;
      common = all < common ? all : common;
    }
    if (most == 0) return;
    score(row, some, most);
    for (int r = 0; r < some; ++r) finish_scores(scratch.scores + r * kBlockKeys, row + r, key, common, counts[r]);
    float factors[kSoftmaxRows];
    softmax_rows(scratch.scores, row, some, counts, softmax(), factors);
    // Two keys that meet as one element of a panel must both be seen.
    if (common < count) common -= common % int(kPerElement<P>);
    add_common(row, some, common, factors);
    for (int r = 0; r < some; ++r)
      for (int t = common; t < counts[r]; ++t)
        if (visible.sees(token(row + r), key + t))
          add_latent(scratch.scores[r * kBlockKeys + t], latents + (key + t) * p.latentStride,
                     scratch.sums + (row + r) * p.width);
  }

  // Scores of `some` rows with the first `count` keys of the block.
  void score(int row, int some, int count) const {
    for (int j = 0; j < count; j += kPanelColumns)
      multiply_panel(some, vectors_of(count - j), query(row), query_stride(), key_panel(j), key_depth(),
                     scratch.scores + j, kBlockKeys, nullptr);
  }

  // Scales a row of scores; those of keys behind the first `common` that the row does not see become −∞.
  void finish_scores(float* scores, int row, size_t key, int common, int count) const {
    for (size_t t = 0; t < kBlockKeys; t += kLanes) store(scores + t, load(scores + t) * splat(p.scale));
    for (int t = common; t < count; ++t)
      if (!visible.sees(token(row), key + t)) scores[t] = -INFINITY;
  }

  // Multiplies the rows' sums by `factors`, and adds the first `common` latents of the block, weighted.
  void add_common(int row, int some, int common, const float* factors) const {
    const Left<P>* weights = reinterpret_cast<const Left<P>*>(scratch.scores);
    if constexpr (kBf16) {
      bf16* rounded = reinterpret_cast<bf16*>(scratch.weights);
      convert_row(scratch.scores, some * kBlockKeys, rounded);
      weights = rounded;
    }
    for (size_t d = 0; d < p.rank; d += kPanelColumns)
      multiply_panel(some, vectors_of(p.rank - d), weights, kBlockKeys, value_panel(d), depth(common),
                     scratch.sums + row * p.width + d, p.width, factors);
  }

  void add_latent(float weight, const C* latent, float* sums) const {
    for_lanes(
        p.rank, [&](size_t i) { store(sums + i, fma(splat(weight), load(latent + i), load(sums + i))); },
        [&](size_t i, int n) {
          store(sums + i, fma(splat(weight), load_partial(latent + i, n), load(sums + i)));
        });
  }

  void store_rows(float* partial) const {
    for (int row = 0; row < rows; ++row, partial += partial_size(p.rank)) {
      partial[0] = scratch.maxima[row];
      partial[1] = scratch.denominators[row];
      memcpy(partial + MLA_PIECES_SOFTMAX_SIZE, scratch.sums + row * p.width, p.rank * sizeof(float));
    }
  }
};

template <typename X, typename C>
int32_t mla_pieces(const Launch& l) {
  const auto& p = l.args<MlaPiecesParams>();
  const auto scratch = scratch_of(l, p);
  const Indices lengths = l.indices(MLA_PIECES_LENGTHS);
  const TreeMask mask = l.buffer<const uint32_t>(MLA_PIECES_TREE_MASK);
  const size_t least = least_length(p), all_rows = size_t(p.tokens) * p.heads, groups = l.threadgroups[1];
  if (!lengths_right(lengths, p.batch, least, p.capacity, l, {MLA_PIECES_FAULT_LENGTH, MLA_PIECES_FAULT_NEW_ROWS}))
    return 1;
  for (uint64_t group = l.begin; group < l.end; ++group) {
    const size_t piece = group % p.pieces, first = group / p.pieces % groups * p.groupRows;
    const size_t sequence = group / p.pieces / groups;
    const size_t length = length_at(lengths, sequence, least, p.capacity), keys = piece_keys(length, p.mostPieces);
    const size_t begin = piece * keys;
    if (begin >= length) continue;
    const size_t cache_row = sequence * p.sequenceStride, row = sequence * all_rows;
    const RowGroup<X, C> rows = {p,
                                 scratch,
                                 visible_rows(p, length, mask),
                                 first,
                                 int(all_rows - first < p.groupRows ? all_rows - first : p.groupRows),
                                 l.buffer<const C>(MLA_PIECES_LATENT_CACHE) + cache_row * p.latentStride,
                                 l.buffer<const C>(MLA_PIECES_K_PE_CACHE) + cache_row * p.ropeStride};
    rows.load_queries(l.buffer<const float>(MLA_PIECES_QUERIES) + row * p.rank,
                      l.buffer<const X>(MLA_PIECES_Q_PE) + row * p.rope);
    const size_t seen = rows.visible.end(rows.token(rows.rows - 1)), last = begin + keys;
    const size_t end = seen < last ? seen : last;
    for (size_t key = begin; key < end; key += kBlockKeys) {
      const int count = int(end - key < kBlockKeys ? end - key : kBlockKeys);
      rows.pack_block(key, count);
      for (int r = 0; r < rows.rows; r += kPanelRows) rows.attend(key, count, r);
    }
    rows.store_rows(l.buffer<float>(MLA_PIECES_PARTIAL) +
                    partial_address(sequence, piece, p.pieces, first, all_rows, p.rank));
  }
  return 0;
}

}  // namespace

MLXTS_KERNEL(mla_pieces_f32_f32, mla_pieces<float, float>)
MLXTS_KERNEL(mla_pieces_f32_f16, mla_pieces<float, f16>)
MLXTS_KERNEL(mla_pieces_f32_bf16, mla_pieces<float, bf16>)
MLXTS_KERNEL(mla_pieces_f16_f32, mla_pieces<f16, float>)
MLXTS_KERNEL(mla_pieces_f16_f16, mla_pieces<f16, f16>)
MLXTS_KERNEL(mla_pieces_f16_bf16, mla_pieces<f16, bf16>)
MLXTS_KERNEL(mla_pieces_bf16_f32, mla_pieces<bf16, float>)
MLXTS_KERNEL(mla_pieces_bf16_f16, mla_pieces<bf16, f16>)
MLXTS_KERNEL(mla_pieces_bf16_bf16, mla_pieces<bf16, bf16>)
