// Attention of query rows by AMX, with keys, values and weights of bf16: as AttentionRows (attention_rows.h), with
// larger blocks of keys and more rows at a time. Each row sees the first keys of a block, or none.
#pragma once
#include "amx_product.h"
#include "matrix_pack.h"
#include "online_softmax.h"

namespace mlxts {

inline constexpr size_t kTileKeys = 256;    // of a block
inline constexpr size_t kTileQueries = 32;  // rows that meet a block at a time

#if defined(__AMX_BF16__)
// Rows of queries are padded to kTileQueries, keys and queries with zeros to `depth`.
struct TileAttention {
  int rows;
  size_t columns;  // of a value
  size_t depth;    // of a key, a multiple of kTileDepth
  size_t width;    // from a row of sums to the next, as many as `columns` in whole tiles
  float scale;
  Softmax softmax;
  bf16* queries;  // [rows, depth]
  bf16* keys;     // tiles [kTileKeys / 16, depth / 32]
  bf16* values;   // tiles [⌈columns / 16⌉, kTileKeys / 32]
  float* sums;    // [rows, width]
  float* scores;  // [kTileQueries, kTileKeys]
  bf16* weights;  // the same, rounded

  // `columns` elements from element `first` on of `count` keys; both begin tiles of their own.
  void pack_keys(const bf16* from, size_t stride, size_t columns, int count, size_t first = 0) const {
    Largest unused[AmxTiles::kRows];
    for (int j = 0; j < count; j += AmxTiles::kRows)
      pack_right<false>([&](int r) { return from + (j + r) * stride; },
                        count - j < AmxTiles::kRows ? count - j : AmxTiles::kRows, columns,
                        keys + j * depth + first * AmxTiles::kRows, unused);
  }

  // The values of `count` keys. Whether all are finite.
  bool pack_values(const bf16* from, size_t stride, int count) const {
    const vu32 exponent = vu32{} + 0x7f807f80u;
    __mmask32 infinite = 0;
    for (size_t d = 0; d < columns; d += kTileDepth) {
      const auto row = [&](int key) {
        if (key >= count) return vu32{};
        const bf16* at = from + key * stride + d;
        return columns - d >= kTileDepth ? load_bf16x2(at) : load_bf16x2_partial(at, int(columns - d));
      };
      bf16* to = values + d / AmxTiles::kRows * (kTileKeys * AmxTiles::kRows);
      for (int key = 0; key < int(round_up(count, kTileDepth)); key += 2, to += kTileDepth) {
        const vu32 a = row(key), b = row(key + 1);
        const auto bad = [&](vu32 v) {
          return _mm512_cmpeq_epi16_mask(reinterpret_cast<__m512i>(v & exponent), reinterpret_cast<__m512i>(exponent));
        };
        infinite |= bad(a) | bad(b);
        vu32 low, high;
        interleave_bf16(a, b, low, high);
        memcpy(to, &low, sizeof low);
        if (columns - d > AmxTiles::kRows) memcpy(to + kTileKeys * AmxTiles::kRows, &high, sizeof high);
      }
    }
    return infinite == 0;
  }

  // The packed block for up to kTileQueries rows from `row` on, a multiple of it, of which row r sees the first
  // counts[r] keys: no fewer than the row before it. The first block that a row sees comes with `first`. `from`: the
  // values, for where they are not `finite` and rows see different keys, as 0 · NaN is NaN.
  void attend(int row, int some, const int* counts, bool first, bool finite, const bf16* from, size_t stride) const {
    const int most = counts[some - 1];
    if (most == 0) return;
    const size_t blocks = tiles_of(some, AmxTiles::kRows), steps = tiles_of(most, kTileDepth);
    TileFetch none;
    TileOperands score{queries + row * depth,
                       AmxTiles::kRows * depth,
                       kTileDepth,
                       depth,
                       keys,
                       AmxTiles::kRows * depth,
                       depth / kTileDepth,
                       scores,
                       AmxTiles::kRows * kTileKeys,
                       AmxTiles::kRows,
                       kTileKeys,
                       false};
    for (int j = 0; j < most; j += 2 * AmxTiles::kRows) {
      multiply_tiles<1, 1>(blocks, most - j > AmxTiles::kRows ? 2 : 1, score, none);
      score.right += 2 * score.rightNext;
      score.sums += 2 * AmxTiles::kRows;
    }
    for (int r = 0; r < some; r += kSoftmaxRows) {
      const int n = some - r < kSoftmaxRows ? some - r : kSoftmaxRows;
      float factors[kSoftmaxRows];
      softmax_rows(scores + r * kTileKeys, kTileKeys, row + r, n, counts + r, scale, softmax, factors,
                   weights + r * kTileKeys);
      if (!first) scale_sums(row + r, n, factors);
    }
    if (!finite && counts[0] < most) return add_rows(row, some, counts, first, from, stride);
    for (int r = 0; r < some; ++r)
      for (size_t i = round_up(counts[r], kLanes); i < steps * kTileDepth; i += kLanes)
        memset(weights + r * kTileKeys + i, 0, kLanes * sizeof(bf16));
    TileOperands add{weights,
                     AmxTiles::kRows * kTileKeys,
                     kTileDepth,
                     kTileKeys,
                     values,
                     kTileKeys * AmxTiles::kRows,
                     steps,
                     sums + row * width,
                     AmxTiles::kRows * width,
                     AmxTiles::kRows,
                     width,
                     !first};
    for (size_t d = 0; d < columns; d += 2 * AmxTiles::kRows) {
      multiply_tiles<1, 1>(blocks, columns - d > AmxTiles::kRows ? 2 : 1, add, none);
      add.right += 2 * add.rightNext;
      add.sums += 2 * AmxTiles::kRows;
    }
  }

  // A row of the result; zeros where no key was seen.
  template <typename O>
  void store_row(int row, bool none, O* to) const {
    softmax.store_row(row, none, sums + row * width, columns, to);
  }

 private:
  void scale_sums(int row, int some, const float* factors) const {
    for (int r = 0; r < some; ++r) {
      if (factors[r] == 1) continue;
      float* sum = sums + (row + r) * width;
      for (size_t d = 0; d < columns; d += kLanes) store(sum + d, load(sum + d) * splat(factors[r]));
    }
  }

  // Adds the weighted values that each row sees.
  void add_rows(int row, int some, const int* counts, bool first, const bf16* from, size_t stride) const {
    for (int r = 0; r < some; ++r)
      for (size_t d = 0; d < columns; ++d) {
        float sum = first ? 0 : sums[(row + r) * width + d];
        for (int i = 0; i < counts[r]; ++i) sum += to_f32(weights[r * kTileKeys + i]) * to_f32(from[i * stride + d]);
        sums[(row + r) * width + d] = sum;
      }
  }
};
#endif

}  // namespace mlxts
