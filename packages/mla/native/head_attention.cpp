// One threadgroup: some tokens of a head against the rows of this block that the last of them sees. Keys are those of the
// head, and behind them the rotated ones that all heads share.
#include "attention_rows.h"
#include "head_attention.h"

using namespace mlxts;

namespace {

static_assert(kPanelRows == HEAD_ATTENTION_PANEL_ROWS && HEAD_ATTENTION_PANEL_COLUMNS % kPanelColumns == 0);
static_assert(kBlockKeys == HEAD_ATTENTION_BLOCK_KEYS);

template <typename X, typename C>
struct TokenGroup {
  using E = std::conditional_t<std::is_same_v<X, C>, X, float>;  // an element of the head's keys and values
  static constexpr bool kBf16 = kFastBf16Dot && std::is_same_v<E, bf16>;
  using P = std::conditional_t<kBf16, bf16x2, float>;  // an element of panels

  const HeadAttentionParams& p;
  size_t sequence, head, length, first;  // `first` of the tokens
  AttentionRows<P, P, std::is_same_v<X, float>> rows;

  // A key is two parts, each padded to a whole number of elements of panels.
  static size_t depth(size_t columns) { return (columns + kPerElement<P> - 1) / kPerElement<P>; }

  TokenGroup(const HeadAttentionParams& p, const HeadAttentionScratch& scratch, size_t sequence, size_t head,
             size_t length, size_t first, int count)
      : p(p),
        sequence(sequence),
        head(head),
        length(length),
        first(first),
        rows{count,
             p.v,
             depth(p.nope) + depth(p.rope),
             p.keyWidth,
             p.width,
             p.scale,
             {scratch.maxima, scratch.denominators},
             reinterpret_cast<Left<P>*>(scratch.queries),
             reinterpret_cast<P*>(scratch.keys),
             reinterpret_cast<P*>(scratch.values),
             scratch.sums,
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
    for (int row = 0; row < rows.rows; ++row) {
      const size_t at = query_row(p, sequence, first + row, head);
      Left<P>* to = rows.queries + row * rows.queryStride;
      // Rows of a head lie too far apart for the hardware to fetch the next ones.
      const size_t ahead = query_row(p, sequence, first + (row + 8 < rows.rows ? row + 8 : row), head);
      prefetch_rows(q + ahead * p.qDim, 0, 1, p.nope * sizeof(X));
      prefetch_rows(q_pe + ahead * p.rope, 0, 1, p.rope * sizeof(X));
      load_part(q + at * p.qDim, p.nope, to);
      load_part(q_pe + at * p.rope, p.rope, to + depth(p.nope) * kPerElement<P>);
    }
  }

  // Softmax and sums of the blocks before this one.
  void resume(const float* running) const {
    for (int row = 0; row < rows.rows; ++row) {
      rows.softmax.clear(row);
      if (p.firstRow == 0) continue;
      const float* from = running + running_row(p, sequence, first + row, head);
      rows.softmax.maxima[row] = from[0];
      rows.softmax.denominators[row] = from[1];
      memcpy(rows.sums + row * p.width, from + HEAD_ATTENTION_SOFTMAX_SIZE, p.v * sizeof(float));
    }
  }
  void pause(float* running) const {
    for (int row = 0; row < rows.rows; ++row) {
      float* to = running + running_row(p, sequence, first + row, head);
      to[0] = rows.softmax.maxima[row];
      to[1] = rows.softmax.denominators[row];
      memcpy(to + HEAD_ATTENTION_SOFTMAX_SIZE, rows.sums + row * p.width, p.v * sizeof(float));
    }
  }

  // Packs `count` rows of the cache from `key` on.
  void pack_block(const E* keys, const E* values, const C* rotated, size_t key, int count) const {
    const size_t at = key_row(p, sequence, key, head), stride = p.blockHeads;
    const C* k_pe = rotated + (sequence * p.sequenceStride + key) * p.ropeStride;
    const E* k = keys + at * p.nope;
    for (int j = 0; j < count; j += kPanelColumns) {
      P* panel = rows.key_panel(j);
      pack_transposed(k + j * stride * p.nope, stride * p.nope, count - j, p.nope,
                      ptrdiff_t(kBlockKeys * stride * p.nope), panel);
      pack_transposed(k_pe + j * p.ropeStride, p.ropeStride, count - j, p.rope,
                      ptrdiff_t(kBlockKeys * p.ropeStride), panel + depth(p.nope) * kPanelColumns);
    }
    rows.pack_values(values + at * p.v, stride * p.v, count);
  }

  // How many keys of the block from `key` on a row sees.
  int seen(size_t key, int row) const {
    const size_t visible = visible_rows(p, length, first + row);
    return int(visible <= key ? 0 : visible - key < kBlockKeys ? visible - key : kBlockKeys);
  }

  // The block of `count` keys from `key` on, for all tokens.
  void attend(size_t key, int count) const {
    const bool finite = seen(key, 0) >= count || rows.finite(count);
    for (int row = 0; row < rows.rows; row += kPanelRows) {
      const int some = rows.rows - row < kPanelRows ? rows.rows - row : kPanelRows;
      int counts[kPanelRows];
      for (int r = 0; r < some; ++r) counts[r] = seen(key, row + r);
      rows.attend(row, some, counts, key == 0, finite);
    }
  }

  template <typename O>
  void store(void* out) const {
    for (int row = 0; row < rows.rows; ++row)
      rows.store_row(row, length == 0, static_cast<O*>(out) + query_row(p, sequence, first + row, head) * p.v);
  }
};

template <typename X, typename C>
int32_t head_attention(const Launch& l) {
  using Group = TokenGroup<X, C>;
  const auto& p = l.args<HeadAttentionParams>();
  const auto scratch = scratch_of(l, p);
  const Indices lengths = l.indices(HEAD_ATTENTION_LENGTHS);
  const size_t least = least_length(p), blocks = l.threadgroups[0];
  if (!lengths_right(lengths, p.batch, least, p.capacity, l,
                     {HEAD_ATTENTION_FAULT_LENGTH, HEAD_ATTENTION_FAULT_NEW_ROWS}))
    return 1;
  for (uint64_t group = l.begin; group < l.end; ++group) {
    // Last tokens first: when causal they see most and take longest.
    const size_t first = (blocks - 1 - group % blocks) * p.groupRows, rest = p.tokens - first;
    const size_t head = group / blocks % p.blockHeads, sequence = group / blocks / p.blockHeads;
    const size_t length = length_at(lengths, sequence, least, p.capacity);
    const Group tokens(p, scratch, sequence, head, length, first, int(rest < p.groupRows ? rest : p.groupRows));
    const size_t seen = visible_rows(p, length, first + tokens.rows.rows - 1), last = p.firstRow + p.rows;
    // Done in a block before.
    if (p.firstRow > 0 && seen <= p.firstRow) continue;
    float* running = l.buffer<float>(HEAD_ATTENTION_RUNNING);
    tokens.resume(running);
    tokens.load_queries(l.buffer<const X>(HEAD_ATTENTION_Q), l.buffer<const X>(HEAD_ATTENTION_Q_PE));
    const size_t end = seen < last ? seen : last;
    for (size_t key = p.firstRow; key < end; key += kBlockKeys) {
      const int count = int(end - key < kBlockKeys ? end - key : kBlockKeys);
      tokens.pack_block(l.buffer<const typename Group::E>(HEAD_ATTENTION_KEYS),
                        l.buffer<const typename Group::E>(HEAD_ATTENTION_VALUES),
                        l.buffer<const C>(HEAD_ATTENTION_K_PE_CACHE), key, count);
      tokens.attend(key, count);
    }
    void* out = l.buffer<void>(HEAD_ATTENTION_OUT);
    if (seen > last)
      tokens.pause(running);
    else if (p.outDtype == 0)
      tokens.template store<float>(out);
    else if (p.outDtype == 1)
      tokens.template store<f16>(out);
    else
      tokens.template store<bf16>(out);
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
MLXTS_KERNEL(head_attention_bf16_bf16, head_attention<bf16, bf16>)
