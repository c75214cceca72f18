// One threadgroup: some tokens of a head against the rows of this block that the last of them sees. Keys are those of
// the head, and behind them the rotated ones that all heads share.
#include "head_attention.h"

#include "amx_attention.h"
#include "attention_rows.h"

using namespace mlxts;

namespace {

static_assert(kPanelRows == HEAD_ATTENTION_PANEL_ROWS && HEAD_ATTENTION_PANEL_COLUMNS % kPanelColumns == 0);
static_assert(kBlockKeys == HEAD_ATTENTION_BLOCK_KEYS);
static_assert(kTileKeys == HEAD_ATTENTION_TILE_KEYS && kTileQueries == HEAD_ATTENTION_TILE_QUERIES);

// Where rows of E may be fetched ahead: those of a head lie too far apart for the hardware to fetch the next ones.
template <typename E>
void fetch_row(const E* row, size_t columns) {
  prefetch_rows(row, 0, 1, columns * sizeof(E));
}

// The tokens of a threadgroup, with their softmax and sums.
struct Tokens {
  const HeadAttentionParams& p;
  size_t sequence, head, length, first;
  int count;
  Softmax softmax;
  float* sums;

  size_t query(int row) const { return query_row(p, sequence, first + row, head); }
  // How many of `most` keys from `key` on a token sees.
  int seen(size_t key, int row, size_t most) const {
    const size_t visible = visible_rows(p, length, first + row);
    return int(visible <= key ? 0 : visible - key < most ? visible - key : most);
  }

  // load(row, q, q_pe) for all tokens.
  template <typename X, typename Load>
  void for_queries(const X* q, const X* q_pe, Load load) const {
    for (int row = 0; row < count; ++row) {
      const size_t at = query(row), ahead = query(row + 8 < count ? row + 8 : row);
      fetch_row(q + ahead * p.qDim, p.nope);
      fetch_row(q_pe + ahead * p.rope, p.rope);
      load(row, q + at * p.qDim, q_pe + at * p.rope);
    }
  }

  // Softmax and sums of the blocks before this one.
  void resume(const float* running) const {
    for (int row = 0; row < count; ++row) {
      softmax.clear(row);
      if (p.firstRow == 0) continue;
      const float* from = running + running_row(p, sequence, first + row, head);
      softmax.maxima[row] = from[0];
      softmax.denominators[row] = from[1];
      memcpy(sums + row * p.width, from + HEAD_ATTENTION_SOFTMAX_SIZE, p.v * sizeof(float));
    }
  }
  void pause(float* running) const {
    for (int row = 0; row < count; ++row) {
      float* to = running + running_row(p, sequence, first + row, head);
      to[0] = softmax.maxima[row];
      to[1] = softmax.denominators[row];
      memcpy(to + HEAD_ATTENTION_SOFTMAX_SIZE, sums + row * p.width, p.v * sizeof(float));
    }
  }
};

// A head's keys and values, and the rotated keys, from a row of the cache on; strides in elements.
template <typename E, typename C>
struct HeadRows {
  const E *keys, *values;
  const C* rotated;
  size_t keyStride, valueStride, rotatedStride;
};

template <typename X, typename C>
struct PanelGroup {
  // An element of the head's keys and values.
  using E = std::conditional_t<std::is_same_v<Stored<X>, C>, C, float>;
  static constexpr bool kBf16 = kDotsBf16<X, C>;
  using P = std::conditional_t<kBf16, bf16x2, float>;  // an element of panels
  static constexpr size_t kKeys = kBlockKeys;

  const Tokens& tokens;
  const HeadAttentionParams& p;
  AttentionRows<P, P, std::is_same_v<X, float>> rows;

  // A key is two parts, each padded to a whole number of elements of panels.
  static size_t depth(size_t columns) { return (columns + kPerElement<P> - 1) / kPerElement<P>; }

  PanelGroup(const Tokens& tokens, const HeadAttentionScratch& scratch)
      : tokens(tokens),
        p(tokens.p),
        rows{tokens.count,
             p.v,
             depth(p.nope) + depth(p.rope),
             p.keyWidth,
             p.width,
             p.scale,
             tokens.softmax,
             reinterpret_cast<Left<P>*>(scratch.queries),
             reinterpret_cast<P*>(scratch.keys),
             reinterpret_cast<P*>(scratch.values),
             tokens.sums,
             scratch.scores,
             static_cast<Left<P>*>(kBf16 ? static_cast<void*>(scratch.weights) : scratch.scores)} {}

  template <typename T>
  static void load_part(const T* from, size_t columns, Left<P>* to) {
    if constexpr (std::is_same_v<T, Left<P>>)
      memcpy(to, from, columns * sizeof(T));
    else
      convert_row(from, columns, to);
    if (kPerElement<P> == 2 && columns % 2) to[columns] = {};
  }
  void load_queries(const X* q, const X* q_pe) const {
    tokens.for_queries(q, q_pe, [&](int row, const X* nope, const X* rope) {
      Left<P>* to = rows.queries + row * rows.queryStride;
      load_part(nope, p.nope, to);
      load_part(rope, p.rope, to + depth(p.nope) * kPerElement<P>);
    });
  }

  // Packs `count` keys and values.
  void pack_block(const HeadRows<E, C>& from, int count) const {
    for (int j = 0; j < count; j += kPanelColumns) {
      P* panel = rows.key_panel(j);
      pack_transposed(from.keys + j * from.keyStride, from.keyStride, count - j, p.nope,
                      ptrdiff_t(kBlockKeys * from.keyStride), panel);
      pack_transposed(from.rotated + j * from.rotatedStride, from.rotatedStride, count - j, p.rope,
                      ptrdiff_t(kBlockKeys * from.rotatedStride), panel + depth(p.nope) * kPanelColumns);
    }
    rows.pack_values(from.values, from.valueStride, count);
  }

  // The block of `count` keys from `key` on, for all tokens.
  void attend(const HeadRows<E, C>& from, size_t key, int count) const {
    pack_block(from, count);
    const bool finite = tokens.seen(key, 0, kKeys) >= count || rows.finite(count);
    for (int row = 0; row < rows.rows; row += kPanelRows) {
      const int some = rows.rows - row < kPanelRows ? rows.rows - row : kPanelRows;
      int counts[kPanelRows];
      for (int r = 0; r < some; ++r) counts[r] = tokens.seen(key, row + r, kKeys);
      rows.attend(row, some, counts, key == 0, finite);
    }
  }
};

#if defined(__AMX_BF16__)
// The same by AMX.
struct TileGroup {
  using E = bf16;
  static constexpr size_t kKeys = kTileKeys;

  const Tokens& tokens;
  const HeadAttentionParams& p;
  size_t nopeDepth;  // of the first part of a key; both begin tiles of their own
  TileAttention rows;

  TileGroup(const Tokens& tokens, const HeadAttentionScratch& scratch)
      : tokens(tokens),
        p(tokens.p),
        nopeDepth(round_up(p.nope, kTileDepth)),
        rows{tokens.count,
             p.v,
             nopeDepth + round_up(p.rope, kTileDepth),
             p.width,
             p.scale,
             tokens.softmax,
             reinterpret_cast<bf16*>(scratch.queries),
             reinterpret_cast<bf16*>(scratch.keys),
             reinterpret_cast<bf16*>(scratch.values),
             tokens.sums,
             scratch.scores,
             reinterpret_cast<bf16*>(scratch.weights)} {}

  static void load_part(const bf16* from, size_t columns, size_t depth, bf16* to) {
    memcpy(to, from, columns * sizeof(bf16));
    memset(to + columns, 0, (depth - columns) * sizeof(bf16));
  }
  void load_queries(const bf16* q, const bf16* q_pe) const {
    tokens.for_queries(q, q_pe, [&](int row, const bf16* nope, const bf16* rope) {
      bf16* to = rows.queries + row * rows.depth;
      load_part(nope, p.nope, nopeDepth, to);
      load_part(rope, p.rope, rows.depth - nopeDepth, to + nopeDepth);
    });
  }

  void attend(const HeadRows<bf16, bf16>& from, size_t key, int count) const {
    rows.pack_keys(from.keys, from.keyStride, p.nope, count);
    rows.pack_keys(from.rotated, from.rotatedStride, p.rope, count, nopeDepth);
    const bool finite = rows.pack_values(from.values, from.valueStride, count);
    for (int row = 0; row < rows.rows; row += int(kTileQueries)) {
      const int some = rows.rows - row < int(kTileQueries) ? rows.rows - row : int(kTileQueries);
      int counts[kTileQueries];
      for (int r = 0; r < some; ++r) counts[r] = tokens.seen(key, row + r, kKeys);
      rows.attend(row, some, counts, key == 0, finite, from.values, from.valueStride);
    }
  }
};
#endif

// Attention of the tokens over the rows of this block, of which the last one sees `seen` in all.
template <typename Group, typename X, typename C>
void attend_all(const Launch& l, const Tokens& tokens, const HeadAttentionScratch& scratch, size_t seen) {
  using E = typename Group::E;
  const HeadAttentionParams& p = tokens.p;
  const Group group(tokens, scratch);
  float* running = l.buffer<float>(HEAD_ATTENTION_RUNNING);
  tokens.resume(running);
  group.load_queries(l.buffer<const X>(HEAD_ATTENTION_Q), l.buffer<const X>(HEAD_ATTENTION_Q_PE));
  const size_t last = p.firstRow + p.rows, end = seen < last ? seen : last;
  for (size_t key = p.firstRow; key < end; key += Group::kKeys) {
    const size_t at = key_row(p, tokens.sequence, key, tokens.head);
    const HeadRows<E, C> from = {
        l.buffer<const E>(HEAD_ATTENTION_KEYS) + at * p.nope,
        l.buffer<const E>(HEAD_ATTENTION_VALUES) + at * p.v,
        l.buffer<const C>(HEAD_ATTENTION_K_PE_CACHE) + (tokens.sequence * p.sequenceStride + key) * p.ropeStride,
        size_t(p.blockHeads) * p.nope,
        size_t(p.blockHeads) * p.v,
        p.ropeStride};
    group.attend(from, key, int(end - key < Group::kKeys ? end - key : Group::kKeys));
  }
  if (seen > last) return tokens.pause(running);
  const auto store = [&](auto* out) {
    for (int row = 0; row < tokens.count; ++row)
      group.rows.store_row(row, tokens.length == 0, out + tokens.query(row) * p.v);
  };
  if (p.outDtype == 0)
    store(l.buffer<float>(HEAD_ATTENTION_OUT));
  else if (p.outDtype == 1)
    store(l.buffer<f16>(HEAD_ATTENTION_OUT));
  else
    store(l.buffer<bf16>(HEAD_ATTENTION_OUT));
}

template <typename X, typename C>
int32_t head_attention(const Launch& l) {
  const auto& p = l.args<HeadAttentionParams>();
  const auto scratch = scratch_of(l, p);
  const Indices lengths = l.indices(HEAD_ATTENTION_LENGTHS);
  const size_t least = least_length(p), blocks = l.threadgroups[0];
  if (!lengths_right(lengths, p.batch, least, p.capacity, l,
                     {HEAD_ATTENTION_FAULT_LENGTH, HEAD_ATTENTION_FAULT_NEW_ROWS}))
    return 1;
#if defined(__AMX_BF16__)
  const AmxTiles tiles;
  using Group = std::conditional_t<std::is_same_v<X, bf16> && std::is_same_v<C, bf16>, TileGroup, PanelGroup<X, C>>;
#else
  using Group = PanelGroup<X, C>;
#endif
  for (uint64_t group = l.begin; group < l.end; ++group) {
    // Last tokens first: when causal they see most and take longest.
    const size_t first = (blocks - 1 - group % blocks) * p.groupRows, rest = p.tokens - first;
    const size_t head = group / blocks % p.blockHeads, sequence = group / blocks / p.blockHeads;
    const Tokens tokens = {p,
                           sequence,
                           head,
                           length_at(lengths, sequence, least, p.capacity),
                           first,
                           int(rest < p.groupRows ? rest : p.groupRows),
                           {scratch.maxima, scratch.denominators},
                           scratch.sums};
    const size_t seen = visible_rows(p, tokens.length, first + tokens.count - 1);
    // Done in a block before.
    if (p.firstRow > 0 && seen <= p.firstRow) continue;
    attend_all<Group, X, C>(l, tokens, scratch, seen);
  }
  return 0;
}

}  // namespace

MLXTS_KERNEL(head_attention_f32_f32, head_attention<float, float>)
MLXTS_KERNEL(head_attention_f32_f16, head_attention<float, f16>)
MLXTS_KERNEL(head_attention_f32_bf16, head_attention<float, bf16>)
MLXTS_KERNEL(head_attention_f16_f32, head_attention<f16, float>)
MLXTS_KERNEL(head_attention_f16_f16, head_attention<f16, f16>)
MLXTS_KERNEL(head_attention_f16_bf16, head_attention<f16, bf16>)
MLXTS_KERNEL(head_attention_bf16_f32, head_attention<bf16, float>)
MLXTS_KERNEL(head_attention_bf16_f16, head_attention<bf16, f16>)
MLXTS_KERNEL_OF_LEFT(head_attention_bf16_bf16, bf16, bf16, head_attention<L, bf16>(launch))
