// One threadgroup: some of the query rows that share a key/value head against all keys that the last of them sees. A
// block of keys and its values are packed once for all rows; then kPanelRows rows at a time are scored, go through the
// online softmax and add the weighted values. Each row sees the first keys of a block, or none.
#include "kv_cache.h"
#include "matrix_pack.h"
#include "online_softmax.h"
#include "sdpa.params.h"

using namespace mlxts;

namespace {

static_assert(kPanelRows == SDPA_PANEL_ROWS && SDPA_PANEL_COLUMNS % kPanelColumns == 0);

// Vectors of a panel that has `columns` columns to give.
int vectors_of(size_t columns) {
  const size_t vectors = (columns + kLanes - 1) / kLanes;
  return int(vectors < kTileVectors ? vectors : kTileVectors);
}

template <typename X, typename C>
struct RowGroup {
  static constexpr bool kBf16 = kHasBf16Dot && std::is_same_v<X, bf16> && std::is_same_v<C, bf16>;
  using Key = std::conditional_t<kBf16, bf16x2, float>;  // an element of packed keys

  const SdpaParams& p;
  const SdpaScratch& scratch;
  QueryRows queries;
  size_t first;  // of the query rows
  int rows;

  Softmax softmax() const { return {scratch.maxima, scratch.denominators}; }
  size_t key_depth() const { return kBf16 ? (p.dim + 1) / 2 : p.dim; }
  // Panels [key_depth, kPanelColumns] of a block's keys, and [kBlockKeys, kPanelColumns] of columns of its values.
  Key* key_panel(size_t key) const { return reinterpret_cast<Key*>(scratch.keys) + key * key_depth(); }
  float* value_panel(size_t column) const { return scratch.values + column * kBlockKeys; }

  // How many keys of the block from `key` on a row sees.
  int seen(size_t key, int row) const {
    const size_t visible = queries.visible(first + row);
    return int(visible <= key ? 0 : visible - key < kBlockKeys ? visible - key : kBlockKeys);
  }

  void load_queries(const X* q) const {
    for (int row = 0; row < rows; ++row) {
      const X* from = q + queries.address(first + row);
      float* to = scratch.queries + row * p.width;
      softmax().clear(row);
      if constexpr (kBf16) {
        memcpy(to, from, p.dim * sizeof(X));
        memset(reinterpret_cast<X*>(to) + p.dim, 0, (2 * key_depth() - p.dim) * sizeof(X));
      } else {
        convert_row(from, p.dim, to);
      }
    }
  }

  // Packs `count` keys and values of a block.
  void pack_block(const C* keys, const C* values, int count) const {
    const size_t dim = p.dim;
    const ptrdiff_t ahead = ptrdiff_t(kBlockKeys * dim);
    for (int j = 0; j < count; j += kPanelColumns)
      pack_transposed(keys + j * dim, dim, count - j, dim, ahead, key_panel(j));
    for (size_t d = 0; d < dim; d += kPanelColumns)
      pack(values + d, dim, int(dim - d), size_t(count), ahead, value_panel(d));
  }

  // The block of keys from `key` on, for up to kPanelRows rows.
  void attend(size_t key, int row) const {
    const int some = rows - row < kPanelRows ? rows - row : kPanelRows;
    const int common = seen(key, row), most = seen(key, row + some - 1);
    if (most == 0) return;
    score(row, some, most);
    int counts[kPanelRows];
    float factors[kSoftmaxRows];
    for (int r = 0; r < some; ++r) counts[r] = seen(key, row + r);
    softmax_rows(scratch.scores, row, some, counts, p.scale, softmax(), factors);
    add_values(row, some, counts, common, key > 0 ? factors : nullptr);
  }

  // Scores of `some` rows with the first `count` keys of the block.
  void score(int row, int some, int count) const {
    const auto* from = reinterpret_cast<const Left<Key>*>(scratch.queries + row * p.width);
    const size_t stride = p.width * sizeof(float) / sizeof(Left<Key>);
    for (int j = 0; j < count; j += kPanelColumns)
      multiply_panel(some, vectors_of(count - j), from, stride, key_panel(j), key_depth(), scratch.scores + j,
                     kBlockKeys, nullptr);
  }

  // Multiplies the rows' sums by `factors`, if given, and adds the weighted values: the first `common` ones for all
  // rows together, those up to counts[r] for each row.
  void add_values(int row, int some, const int* counts, int common, const float* factors) const {
    for (size_t d = 0; d < p.dim; d += kPanelColumns) {
      const float* panel = value_panel(d);
      const int vectors = vectors_of(p.dim - d);
      float* sum = scratch.sums + row * p.width + d;
      multiply_panel(some, vectors, scratch.scores, kBlockKeys, panel, common, sum, p.width, factors);
      for (int r = 0; r < some; ++r)
        if (counts[r] > common)
          multiply_panel(1, vectors, scratch.scores + r * kBlockKeys + common, 0, panel + common * kPanelColumns,
                         counts[r] - common, sum + r * p.width, p.width, kKeep);
    }
  }

  // Zeros where no key was seen.
  void store_rows(bool none, X* out) const {
    for (int row = 0; row < rows; ++row) {
      const float* from = scratch.sums + row * p.width;
      X* to = out + queries.address(first + row);
      const vf32 inverse = splat(none ? 0.0f : 1 / scratch.denominators[row]);
      for_lanes(
          p.dim, [&](size_t i) { store(to + i, none ? vf32{} : load(from + i) * inverse); },
          [&](size_t i, int n) { store_partial(to + i, none ? vf32{} : load_partial(from + i, n) * inverse, n); });
    }
  }
};

template <typename X, typename C>
int32_t sdpa(const Launch& l) {
  const auto& p = l.args<SdpaParams>();
  const auto scratch = scratch_of(l, p);
  const Indices lengths = l.indices(SDPA_LENGTHS);
  const size_t least = least_length(p);
  if (!lengths_right(lengths, p.batch, least, p.capacity, l, {SDPA_FAULT_LENGTH, SDPA_FAULT_NEW_ROWS})) return 1;
  for (uint64_t group = l.begin; group < l.end; ++group) {
    // Last rows first: when causal they see most and take longest.
    const size_t place = l.threadgroups[0] - 1 - group % l.threadgroups[0];
    const size_t head = group / l.threadgroups[0] % p.kvHeads, b = group / l.threadgroups[0] / p.kvHeads;
    const QueryRows queries = query_rows(p, b, head, length_at(lengths, b, least, p.capacity));
    const size_t first = place * p.groupRows, rest = queries.rows - first;
    const RowGroup<X, C> rows = {p, scratch, queries, first, int(rest < p.groupRows ? rest : p.groupRows)};
    const size_t end = queries.visible(first + rows.rows - 1);
    const size_t cache = cache_row(b, head, p.kvHeads, p.capacity, 0) * p.dim;
    const C* keys = l.buffer<const C>(SDPA_K_CACHE) + cache;
    const C* values = l.buffer<const C>(SDPA_V_CACHE) + cache;
    rows.load_queries(l.buffer<const X>(SDPA_Q));
    for (size_t key = 0; key < end; key += kBlockKeys) {
      rows.pack_block(keys + key * p.dim, values + key * p.dim, int(end - key < kBlockKeys ? end - key : kBlockKeys));
      for (int row = 0; row < rows.rows; row += kPanelRows) rows.attend(key, row);
    }
    rows.store_rows(end == 0, l.buffer<X>(SDPA_OUT));
  }
  return 0;
}

}  // namespace

MLXTS_KERNEL(sdpa_f32_f32, sdpa<float, float>)
MLXTS_KERNEL(sdpa_f32_f16, sdpa<float, f16>)
MLXTS_KERNEL(sdpa_f32_bf16, sdpa<float, bf16>)
MLXTS_KERNEL(sdpa_f16_f32, sdpa<f16, float>)
MLXTS_KERNEL(sdpa_f16_f16, sdpa<f16, f16>)
MLXTS_KERNEL(sdpa_f16_bf16, sdpa<f16, bf16>)
MLXTS_KERNEL(sdpa_bf16_f32, sdpa<bf16, float>)
MLXTS_KERNEL(sdpa_bf16_f16, sdpa<bf16, f16>)
MLXTS_KERNEL(sdpa_bf16_bf16, sdpa<bf16, bf16>)
