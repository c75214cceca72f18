// One threadgroup: a piece of a sequence's cache, for some of its query rows. A block of the cache is read once for all
// of them: its keys in place, for tiles of dot products with the queries, then its latents as values, a panel of
// columns at a time.
#include "latent_scores.h"
#include "latent_values.h"
#include "piece_tiles.h"

using namespace mlxts;

namespace {

static_assert(kPanelRows == MLA_PIECES_PANEL_ROWS && MLA_PIECES_PANEL_COLUMNS % kPanelColumns == 0);

constexpr size_t kBlockRows = MLA_PIECES_BLOCK_KEYS;  // of the cache
// Rows that are scored together: their queries stay in the nearest cache.
constexpr int kScoredRows = 16;
constexpr int kMostTiles = MLA_PIECES_GROUP_ROWS / kPanelRows;

template <typename X, typename C>
struct PanelPiece : PieceRows<C> {
  static constexpr bool kBf16 = kDotsBf16<X, C>;
  using P = std::conditional_t<kBf16, bf16x2, float>;  // an element of panels
  static constexpr size_t kKeys = kBlockRows;
  using Rows = PieceRows<C>;
  using Rows::first, Rows::latents, Rows::p, Rows::prefix, Rows::rotated, Rows::rows, Rows::scratch, Rows::seen,
      Rows::softmax, Rows::token, Rows::visible;

  float* scores(int row) const { return scratch.scores + row * kBlockRows; }
  // What scores become: factors of the values.
  Left<P>* weights(int row) const {
    if constexpr (kBf16)
      return reinterpret_cast<bf16*>(scratch.weights) + row * kBlockRows;
    else
      return scores(row);
  }

  // A row of queries: its latent part, and behind it the rotated part.
  size_t query_stride() const { return query_width(p.rank) + query_width(p.rope); }
  Left<P>* query(int row) const { return reinterpret_cast<Left<P>*>(scratch.queries) + row * query_stride(); }

  void load_queries(const float* queries, const X* q_pe) const {
    for (int row = 0; row < rows; ++row) {
      to_load_order<C>(queries + (first + row) * p.rank, p.rank, query(row));
      to_load_order<C>(q_pe + (first + row) * p.rope, p.rope, query(row) + query_width(p.rank));
    }
  }
  void clear(bool) const {
    for (int row = 0; row < rows; ++row) {
      softmax().clear(row);
      memset(scratch.sums + row * p.width, 0, p.width * sizeof(float));
    }
  }

  // The block of `count` rows of the cache from `key` on.
  void attend(size_t key, int count, bool) const {
    for (int row = 0; row < rows; row += kScoredRows) score(key, count, row);
    // Of each tile of kPanelRows rows: the factors of its earlier sums, and how many keys of the block all its rows
    // see.
    float factors[kMostTiles][kSoftmaxRows];
    int common[kMostTiles];
    for (int row = 0; row < rows; row += kPanelRows)
      common[row / kPanelRows] = weigh(key, count, row, factors[row / kPanelRows]);
    for (size_t d = 0; d < p.rank; d += kPanelColumns) add_columns(key, count, d, common, factors);
    for (int row = 0; row < rows; ++row) add_masked(key, count, row, common[row / kPanelRows]);
  }
  int rows_from(int row) const { return rows - row < kPanelRows ? rows - row : kPanelRows; }

  // Scores of up to kScoredRows rows.
  void score(size_t key, int count, int row) const {
    const int some = rows - row < kScoredRows ? rows - row : kScoredRows;
    const int most = seen(row + some - 1, key, count);
    score_block(query(row), query_stride(), some, latents + key * p.latentStride, p.latentStride, p.rank,
                rotated + key * p.ropeStride, p.ropeStride, p.rope, most, p.scale, scores(row), kBlockRows);
  }

  // The weights of a tile's rows. Returns how many of the first keys all rows see, as whole elements of panels.
  int weigh(size_t key, int count, int row, float (&factors)[kSoftmaxRows]) const {
    const int some = rows_from(row);
    int counts[kPanelRows], common = count;
    for (int r = 0; r < some; ++r) {
      counts[r] = seen(row + r, key, count);
      const int all = prefix(row + r, key, count);
      common = all < common ? all : common;
    }
    for (int r = 0; r < some; ++r)
      for (int t = common; t < counts[r]; ++t)
        if (!visible.sees(token(row + r), key + t)) scores(row + r)[t] = -INFINITY;
    softmax_rows(scores(row), kBlockRows, row, some, counts, 1.0f, softmax(), factors, weights(row));
    // Two keys that meet as one element of a panel must both be seen. The last element's second may be missing.
    return common == count ? int(round_up(size_t(count), kPerElement<P>)) : common - common % int(kPerElement<P>);
  }

  // A panel of columns of the block's latents. Where it is whole, the first tile packs it on its way.
  void add_columns(size_t key, int count, size_t d, const int* common, const float (*factors)[kSoftmaxRows]) const {
    const C* values = latents + key * p.latentStride + d;
    P* panel = reinterpret_cast<P*>(scratch.values);
    int row = 0;
    if (p.rank - d >= kPanelColumns && common[0] == count && count % kPerElement<P> == 0) {
      pack_and_multiply(rows_from(0), weights(0), kBlockRows, values, p.latentStride, size_t(count) / kPerElement<P>,
                        panel, scratch.sums + d, p.width, factors[0]);
      row = kPanelRows;
    } else {
      pack(values, p.latentStride, int(p.rank - d), size_t(count), 0, panel);
    }
    for (; row < rows; row += kPanelRows)
      multiply_panel(rows_from(row), vectors_of(p.rank - d), weights(row), kBlockRows, panel,
                     size_t(common[row / kPanelRows]) / kPerElement<P>, scratch.sums + row * p.width + d, p.width,
                     factors[row / kPanelRows]);
  }

  // Adds the weighted latents of the keys from `common` on that the row sees.
  void add_masked(size_t key, int count, int row, int common) const {
    const int end = seen(row, key, count);
    for (int t = common; t < end; ++t)
      if (visible.sees(token(row), key + t))
        add_latent(to_f32(weights(row)[t]), latents + (key + t) * p.latentStride, scratch.sums + row * p.width);
  }

  void add_latent(float weight, const C* latent, float* sums) const {
    for_lanes(
        p.rank, [&](size_t i) { store(sums + i, fma(splat(weight), load(latent + i), load(sums + i))); },
        [&](size_t i, int n) { store(sums + i, fma(splat(weight), load_partial(latent + i, n), load(sums + i))); });
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
#if defined(__AMX_BF16__)
  const AmxTiles tiles;
  using Piece = std::conditional_t<std::is_same_v<X, bf16> && std::is_same_v<C, bf16>, TilePiece, PanelPiece<X, C>>;
#else
  using Piece = PanelPiece<X, C>;
#endif
  size_t loaded = SIZE_MAX;  // the query rows that are in scratch
  for (uint64_t group = l.begin; group < l.end; ++group) {
    const size_t piece = group % p.pieces, first = group / p.pieces % groups * p.groupRows;
    const size_t sequence = group / p.pieces / groups;
    const size_t length = length_at(lengths, sequence, least, p.capacity), keys = piece_keys(length, p.mostPieces);
    const size_t begin = piece * keys;
    if (begin >= length) continue;
    const size_t cache_row = sequence * p.sequenceStride, row = sequence * all_rows;
    const Piece rows = {{p, scratch, visible_rows(p, length, mask), first,
                         int(all_rows - first < p.groupRows ? all_rows - first : p.groupRows),
                         l.buffer<const C>(MLA_PIECES_LATENT_CACHE) + cache_row * p.latentStride,
                         l.buffer<const C>(MLA_PIECES_K_PE_CACHE) + cache_row * p.ropeStride}};
    if (loaded != row + first)
      rows.load_queries(l.buffer<const float>(MLA_PIECES_QUERIES) + row * p.rank,
                        l.buffer<const X>(MLA_PIECES_Q_PE) + row * p.rope);
    loaded = row + first;
    const size_t seen = rows.visible.end(rows.token(rows.rows - 1)), last = begin + keys;
    const size_t end = seen < last ? seen : last;
    rows.clear(end <= begin);
    for (size_t key = begin; key < end; key += Piece::kKeys)
      rows.attend(key, int(end - key < Piece::kKeys ? end - key : Piece::kKeys), key == begin);
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
MLXTS_KERNEL_OF_LEFT(mla_pieces_bf16_bf16, bf16, bf16, mla_pieces<L, bf16>(launch))
