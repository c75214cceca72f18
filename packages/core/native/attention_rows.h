// Attention of query rows on a CPU. A block of keys and its values are packed once for all rows; then kPanelRows rows at a
// time are scored, go through the online softmax and add the weighted values. Each row sees the first keys of a block, or
// none.
#pragma once
#include "matrix_pack.h"
#include "online_softmax.h"

namespace mlxts {

// K and V: what panels of keys and of values are made of, float or bf16x2. A panel has kPanelColumns keys, or columns of
// values; `sums` and packed values are padded to whole panels. ByBlock: the weighted values of a block are added up on
// their own, so that sums over tens of thousands of keys keep the digits of f32.
template <typename K, typename V, bool ByBlock>
struct AttentionRows {
  int rows;
  size_t columns;      // of a value
  size_t depth;        // of a packed key, in K
  size_t queryStride;  // from a row of queries to the next
  size_t width;        // from a row of sums to the next
  float scale;
  Softmax softmax;
  Left<K>* queries;  // [rows, queryStride]
  K* keys;           // [kBlockKeys, depth]
  V* values;         // [columns, kBlockKeys / kPerElement<V>]
  float* sums;       // [rows, width]
  float* scores;     // [kPanelRows, kBlockKeys]
  Left<V>* weights;  // the same, rounded; `scores` where V is float

  K* key_panel(size_t key) const { return keys + key * depth; }
  V* value_panel(size_t column) const { return values + column * (kBlockKeys / kPerElement<V>); }

  template <typename C>
  void pack_values(const C* from, size_t stride, int count) const {
    for (size_t d = 0; d < columns; d += kPanelColumns)
      pack(from + d, stride, int(columns - d), size_t(count), ptrdiff_t(kBlockKeys * stride), value_panel(d));
  }

  // Whether the packed values of `count` keys are finite.
  bool finite(int count) const {
    vu32 largest = {};
    for (size_t d = 0; d < columns; d += kPanelColumns) {
      const V* panel = value_panel(d);
      for (size_t i = 0; i < (count + kPerElement<V> - 1) / kPerElement<V> * kPanelColumns; i += kLanes) {
        vu32 bits;
        memcpy(&bits, panel + i, sizeof bits);
        const vu32 first = bits & 0x7fffffff, second = kPerElement<V> == 2 ? bits << 17 >> 1 : first;
        const vu32 larger = first > second ? first : second;
        largest = larger > largest ? larger : largest;
      }
    }
    bool all = true;
    for (int i = 0; i < kLanes; ++i) all &= largest[i] < 0x7f800000;
    return all;
  }

  // The packed block for up to kPanelRows rows from `row` on, of which row r sees the first counts[r] keys: no fewer than
  // the row before it. The first block that a row sees comes with `first`. Where rows see different keys, those that they
  // do not see get a weight of 0 if the block's values are `finite`; else they are left out, as 0 · NaN is NaN.
  void attend(int row, int some, const int* counts, bool first, bool finite) const {
    const int most = counts[some - 1];
    if (most == 0) return;
    score(row, some, most);
    float factors[kSoftmaxRows];
    softmax_rows(scores, kBlockKeys, row, some, counts, scale, softmax, factors, weights);
    if (finite)
      for (int r = 0; r < some; ++r)
        for (int i = int(round_up(counts[r], kLanes)); i < most; i += kLanes)
          store(weights + r * kBlockKeys + i, vf32{});
    add_values(row, some, counts, finite ? most : counts[0], first ? nullptr : factors);
  }

  // A row of the result; zeros where no key was seen.
  template <typename O>
  void store_row(int row, bool none, O* to) const {
    softmax.store_row(row, none, sums + row * width, columns, to);
  }

 private:
  // Scores of `some` rows with the first `count` keys of the block.
  void score(int row, int some, int count) const {
    for (int j = 0; j < count; j += kPanelColumns)
      multiply_panel(some, vectors_of(count - j), queries + row * queryStride, queryStride, key_panel(j), depth,
                     scores + j, kBlockKeys, nullptr);
  }

  // Multiplies the rows' sums by `factors`, if given, and adds the weighted values: the first `common` ones for all
  // rows together, those up to counts[r] for each row.
  void add_values(int row, int some, const int* counts, int common, const float* factors) const {
    constexpr int kTogether = int(kPerElement<V>);
    if (common < counts[some - 1]) common -= common % kTogether;
    for (size_t d = 0; d < columns; d += kPanelColumns) {
      const V* panel = value_panel(d);
      const int vectors = vectors_of(columns - d);
      float* sum = sums + row * width + d;
      float block[ByBlock ? kPanelRows * kPanelColumns : 1];
      float* to = ByBlock ? block : sum;
      const size_t stride = ByBlock ? kPanelColumns : width;
      multiply_panel(some, vectors, weights, kBlockKeys, panel, (common + kTogether - 1) / kTogether, to, stride,
                     ByBlock ? nullptr : factors);
      for (int r = 0; r < some; ++r) {
        add_rest(r, common, counts[r], panel, vectors, to + r * stride);
        if constexpr (ByBlock) add_block(block + r * kPanelColumns, factors ? factors + r : nullptr, vectors, sum + r * width);
      }
    }
  }

  static void add_block(const float* block, const float* factor, int vectors, float* sum) {
    for (int v = 0; v < vectors * kLanes; v += kLanes)
      store(sum + v, factor ? fma(load(sum + v), splat(*factor), load(block + v)) : load(block + v));
  }

  // Adds the weighted values of keys `begin` … `end − 1` of a panel to a row's sums. Of two bf16 that lie together, the
  // row may see the first alone: the second must not meet its arithmetic.
  void add_rest(int r, int begin, int end, const V* panel, int vectors, float* sum) const {
    if (begin >= end) return;
    if constexpr (kPerElement<V> == 1) {
      multiply_panel(1, vectors, weights + r * kBlockKeys + begin, 0, panel + begin * kPanelColumns, end - begin, sum,
                     width, kKeep);
    } else {
      const int pairs = (end - begin) / 2;
      if (pairs > 0)
        multiply_panel(1, vectors, weights + r * kBlockKeys + begin, 0, panel + begin / 2 * kPanelColumns, pairs, sum,
                       width, kKeep);
      if ((end - begin) % 2 == 0) return;
      const vf32 weight = splat(to_f32(weights[r * kBlockKeys + end - 1]));
      const V* row = panel + end / 2 * kPanelColumns;
      for (int v = 0; v < vectors; ++v)
        store(sum + v * kLanes, fma(weight, widen_first(load_bf16x2(row + v * kLanes)), load(sum + v * kLanes)));
    }
  }
};

}  // namespace mlxts
