// One threadgroup: some of the query rows that share a key/value head against all keys that the last of them sees.
#include "amx_attention.h"
#include "attention_rows.h"
#include "kv_cache.h"
#include "query_rows.h"
#include "sdpa.params.h"

using namespace mlxts;

namespace {

static_assert(kPanelRows == SDPA_PANEL_ROWS && SDPA_PANEL_COLUMNS % kPanelColumns == 0);
static_assert(kBlockKeys == SDPA_PIECES_BLOCK_KEYS);
static_assert(kTileKeys == SDPA_TILE_KEYS && kTileQueries == SDPA_TILE_QUERIES);

// How many of `most` keys from `key` on a row sees.
int seen_keys(QueryRows queries, size_t row, size_t key, size_t most) {
  const size_t visible = queries.visible(row);
  return int(visible <= key ? 0 : visible - key < most ? visible - key : most);
}

#if defined(__AMX_BF16__)
// Rows of a head's queries, against keys and values of bf16.
void attend_by_tiles(const SdpaParams& p, const SdpaScratch& scratch, QueryRows queries, size_t first, int count,
                     const bf16* q, const bf16* keys, const bf16* values, bf16* out) {
  const size_t dim = p.dim;
  const TileAttention rows{count,
                           dim,
                           round_up(dim, kTileDepth),
                           p.width,
                           p.scale,
                           {scratch.maxima, scratch.denominators},
                           reinterpret_cast<bf16*>(scratch.queries),
                           reinterpret_cast<bf16*>(scratch.keys),
                           reinterpret_cast<bf16*>(scratch.values),
                           scratch.sums,
                           scratch.scores,
                           reinterpret_cast<bf16*>(scratch.weights)};
  for (int row = 0; row < count; ++row) {
    bf16* to = rows.queries + row * rows.depth;
    memcpy(to, q + queries.address(first + row), dim * sizeof(bf16));
    memset(to + dim, 0, (rows.depth - dim) * sizeof(bf16));
    rows.softmax.clear(row);
  }
  const size_t end = queries.visible(first + count - 1);
  for (size_t key = 0; key < end; key += kTileKeys) {
    const int block = seen_keys(queries, first + count - 1, key, kTileKeys);
    rows.pack_keys(keys + key * dim, dim, dim, block);
    const bool finite = rows.pack_values(values + key * dim, dim, block);
    for (int row = 0; row < count; row += int(kTileQueries)) {
      const int some = count - row < int(kTileQueries) ? count - row : int(kTileQueries);
      int counts[kTileQueries];
      for (int r = 0; r < some; ++r) counts[r] = seen_keys(queries, first + row + r, key, kTileKeys);
      rows.attend(row, some, counts, key == 0, finite, values + key * dim, dim);
    }
  }
  for (int row = 0; row < count; ++row) rows.store_row(row, end == 0, out + queries.address(first + row));
}
#endif

template <typename X, typename C>
struct RowGroup {
  static constexpr bool kBf16 = kDotsBf16<X, C>;
  using P = std::conditional_t<kBf16, bf16x2, float>;  // an element of panels

  const SdpaParams& p;
  QueryRows queries;
  size_t first;  // of the query rows
  AttentionRows<P, P, std::is_same_v<X, float>> rows;

  RowGroup(const SdpaParams& p, const SdpaScratch& scratch, QueryRows queries, size_t first, int count)
      : p(p),
        queries(queries),
        first(first),
        rows{count,
             p.dim,
             (p.dim + kPerElement<P> - 1) / kPerElement<P>,
             p.width * sizeof(float) / sizeof(Left<P>),
             p.width,
             p.scale,
             {scratch.maxima, scratch.denominators},
             reinterpret_cast<Left<P>*>(scratch.queries),
             reinterpret_cast<P*>(scratch.keys),
             reinterpret_cast<P*>(scratch.values),
             scratch.sums,
             scratch.scores,
             static_cast<Left<P>*>(kBf16 ? static_cast<void*>(scratch.weights) : scratch.scores)} {}

  // How many keys of the block from `key` on a row sees.
  int seen(size_t key, int row) const { return seen_keys(queries, first + row, key, kBlockKeys); }

  void load_queries(const X* q) const {
    for (int row = 0; row < rows.rows; ++row) {
      const X* from = q + queries.address(first + row);
      Left<P>* to = rows.queries + row * rows.queryStride;
      rows.softmax.clear(row);
      convert_row(from, p.dim, to);
      if (kBf16 && p.dim % 2) to[p.dim] = {};
    }
  }

  // Packs `count` keys and values of a block.
  void pack_block(const C* keys, const C* values, int count) const {
    const size_t dim = p.dim;
    for (int j = 0; j < count; j += kPanelColumns)
      pack_transposed(keys + j * dim, dim, count - j, dim, ptrdiff_t(kBlockKeys * dim), rows.key_panel(j));
    rows.pack_values(values, dim, count);
  }

  // The block of `count` keys from `key` on, for all rows.
  void attend(size_t key, int count) const {
    const bool finite = seen(key, 0) >= count || rows.finite(count);
    for (int row = 0; row < rows.rows; row += kPanelRows) {
      const int some = rows.rows - row < kPanelRows ? rows.rows - row : kPanelRows;
      int counts[kPanelRows];
      for (int r = 0; r < some; ++r) counts[r] = seen(key, row + r);
      rows.attend(row, some, counts, key == 0, finite);
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
#if defined(__AMX_BF16__)
  const AmxTiles tiles;
#endif
  for (uint64_t group = l.begin; group < l.end; ++group) {
    // Last rows first: when causal they see most and take longest.
    const size_t place = l.threadgroups[0] - 1 - group % l.threadgroups[0];
    const size_t head = group / l.threadgroups[0] % p.kvHeads, b = group / l.threadgroups[0] / p.kvHeads;
    const QueryRows queries = query_rows(p, b, head, length_at(lengths, b, least, p.capacity));
    const size_t first = place * p.groupRows, rest = queries.rows - first;
    const int count = int(rest < p.groupRows ? rest : p.groupRows);
    const size_t cache = cache_row(b, head, p.kvHeads, p.capacity, 0) * p.dim;
    const C* keys = l.buffer<const C>(SDPA_K_CACHE) + cache;
    const C* values = l.buffer<const C>(SDPA_V_CACHE) + cache;
#if defined(__AMX_BF16__)
    if constexpr (std::is_same_v<X, bf16> && std::is_same_v<C, bf16>) {
      if (p.tiles != 0) {
        attend_by_tiles(p, scratch, queries, first, count, l.buffer<const bf16>(SDPA_Q), keys, values,
                        l.buffer<bf16>(SDPA_OUT));
        continue;
      }
    }
#endif
    const RowGroup<X, C> group_rows(p, scratch, queries, first, count);
    const size_t end = queries.visible(first + count - 1);
    group_rows.load_queries(l.buffer<const X>(SDPA_Q));
    for (size_t key = 0; key < end; key += kBlockKeys) {
      const int block = int(end - key < kBlockKeys ? end - key : kBlockKeys);
      group_rows.pack_block(keys + key * p.dim, values + key * p.dim, block);
      group_rows.attend(key, block);
    }
    for (int row = 0; row < count; ++row)
      group_rows.rows.store_row(row, end == 0, l.buffer<X>(SDPA_OUT) + queries.address(first + row));
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
MLXTS_KERNEL_OF_LEFT(sdpa_bf16_bf16, bf16, bf16, sdpa<L, bf16>(launch))
