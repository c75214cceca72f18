// Gates of their own for each channel of a key: cumulated gates of one chunk and head, [rows, K], and the products
// Σ_c x_ic k_jc exp(G_ic − G_jc) of its rows.
#pragma once
#include "chunk.h"
#include "matrix_reduce.h"

namespace mlxts {

// Rows of a block: products within one go element by element, those with earlier blocks through the block's first row.
inline constexpr size_t kBlockRows = 16;

struct ChannelGates {
  const float* hi;
  const float* lo;  // null: 0
  size_t stride;

  ChannelGates from(size_t channel) const { return {hi + channel, lo ? lo + channel : nullptr, stride}; }
  // body(c, width, load_row) for the vectors of K channels; load_row(row) loads a vector of it.
  template <typename Body>
  MLXTS_INLINE void channels(size_t K, Body body) const {
    for_lanes(
        K, [&](size_t c) { body(c, kLanes, [c](const float* row) { return load(row + c); }); },
        [&](size_t c, int n) { body(c, n, [c, n](const float* row) { return load_partial(row + c, n); }); });
  }
  // body(c, exp(G_i − G_j)) for the vectors of K channels.
  template <typename Body>
  MLXTS_INLINE void between(size_t i, size_t j, size_t K, Body body) const {
    const float *from = hi + i * stride, *to = hi + j * stride;
    if (lo) {
      const float *from_low = lo + i * stride, *to_low = lo + j * stride;
      channels(K, [&](size_t c, int n, auto row) {
        body(c, n, exp((row(from) - row(to)) + (row(from_low) - row(to_low))));
      });
    } else {
      channels(K, [&](size_t c, int n, auto row) { body(c, n, exp(row(from) - row(to))); });
    }
  }
  // body(c, exp(G_i)), the same.
  template <typename Body>
  MLXTS_INLINE void decay(size_t i, size_t K, Body body) const {
    const float *from = hi + i * stride, *low = lo ? lo + i * stride : nullptr;
    channels(K, [&](size_t c, int n, auto row) {
      const vf32 kept = exp(row(from));
      body(c, n, low ? kept * (splat(1.0f) + row(low)) : kept);
    });
  }
};

// Products of rows within a block, from x, k and steps [rows, padded]; steps row i: exp(G_i − G_{i−1}), so that the
// decay between two rows is the product of the steps between them. To [kBlockRows, kBlockRows], j < i or j ≤ i.
template <bool kInclusive>
void block_products(size_t rows, size_t padded, const float* x, const float* k, const float* steps, float* to) {
  // Columns j and j + 1 at a time, kept in registers for N vectors of channels while rows go by.
  const auto columns = [&](auto count, size_t j) {
    constexpr int C = decltype(count)::value;
    vf32 sums[C][kBlockRows + 3] = {};
    const auto segment = [&](auto vectors, size_t at) {
      constexpr int N = decltype(vectors)::value;
      vf32 key[C][N];
      const auto row = [&](size_t i, int first, int last) {
        const size_t from = i * padded + at;
        MLXTS_UNROLL
        for (int n = 0; n < N; ++n) {
          const vf32 left = load(x + from + n * kLanes);
          const vf32 step = load(steps + from + n * kLanes);
          MLXTS_UNROLL
          for (int s = 0; s < C; ++s) {
            if (s < first) key[s][n] *= step;
            if (s < last) sums[s][i] = fma(left, key[s][n], sums[s][i]);
          }
        }
      };
      MLXTS_UNROLL
      for (int s = 0; s < C; ++s) {
        MLXTS_UNROLL
        for (int n = 0; n < N; ++n) key[s][n] = load(k + (j + s) * padded + at + n * kLanes);
      }
      for (int s = 0; s < C; ++s) row(j + s, s, kInclusive ? s + 1 : s);
      for (size_t i = j + C; i < rows; ++i) row(i, C, C);
    };
    size_t at = 0;
    for (; at + 4 * kLanes <= padded; at += 4 * kLanes) segment(std::integral_constant<int, 4>{}, at);
    for (; at < padded; at += kLanes) segment(std::integral_constant<int, 1>{}, at);
    for (int s = 0; s < C; ++s)
      for (size_t i = j; i < rows; i += 4) {
        const vf32x4 four = reduce_add4(sums[s] + i);
        for (size_t r = i; r < rows && r < i + 4; ++r) to[r * kBlockRows + j + s] = four[r - i];
      }
  };
  size_t j = 0;
  for (; j + 2 <= rows; j += 2) columns(std::integral_constant<int, 2>{}, j);
  if (j < rows) columns(std::integral_constant<int, 1>{}, j);
}

// Σ_c x_ic k_jc exp(G_ic − G_jc), rounded to T, for j < i or j ≤ i and 0 else, for n rows of BT columns that lie
// `stride` apart. x and k [n, padded] with zeros beyond K; both are overwritten: x_i by x_i exp(G_i − G_b), where b is
// the first row of i's block. steps [n, padded], turned [K, BT].
template <typename T, bool kInclusive>
void channel_products(size_t n, size_t BT, size_t K, size_t padded, const ChannelGates& gates, float* x, float* k,
                      float* steps, float* turned, float* to, size_t stride) {
  for (size_t i = 1; i < n; ++i)
    gates.between(i, i - 1, K, [&](size_t c, int, vf32 step) { store(steps + i * padded + c, step); });
  for (size_t row = 0; row < n; row += kBlockRows) {
    const size_t rows = n - row < kBlockRows ? n - row : kBlockRows;
    float block[kBlockRows * kBlockRows] = {};
    block_products<kInclusive>(rows, padded, x + row * padded, k + row * padded, steps + row * padded, block);
    for (size_t i = 0; i < rows; ++i) {
      float* out = to + (row + i) * stride;
      for (size_t j = 0; j < kBlockRows; j += kLanes) {
        const vi32 at = lane_index() + splat_i32(j), most = splat_i32(i);
        const vi32 seen = kInclusive ? at <= most : at < most;
        store(out + row + j, select(seen, round_to<T>(load(block + i * kBlockRows + j)), vf32{}));
      }
      for (size_t j = row + kBlockRows; j < BT; j += kLanes) store(out + j, vf32{});
    }

    for (size_t c = 0; c < padded; c += kLanes) {
      vf32 reach = splat(1.0f);
      for (size_t i = row + 1; i < row + rows; ++i) {
        reach *= load(steps + i * padded + c);
        store(x + i * padded + c, load(x + i * padded + c) * reach);
      }
    }
    const auto tile = [&](auto tile) {
      tile.accumulate(x + tile.row * padded, padded, 1, turned + tile.column, BT, K);
      tile.each([&](size_t i, size_t j, vf32 sum) { store(to + i * stride + j, round_to<T>(sum)); });
    };
    size_t i = row;
    for (; i + kTileRows <= row + rows; i += kTileRows) for_tiles_of_row<kTileRows>(i, row, tile);
    for (; i < row + rows; ++i) for_tiles_of_row<1>(i, row, tile);

    // Keys of all blocks so far, decayed to the first row of the next one: exp(G_next − G_j) k_j.
    const size_t next = row + kBlockRows;
    if (next >= n) break;
    for (size_t c = 0; c < padded; c += kLanes) {
      vf32 reach = splat(1.0f);
      for (size_t j = next; j-- > row;) {
        reach *= load(steps + (j + 1) * padded + c);
        store(k + j * padded + c, load(k + j * padded + c) * reach);
      }
    }
    if (row > 0) {
      float kept[kLanes];
      gates.between(next, row, K, [&](size_t c, int count, vf32 decay) {
        store(kept, decay);
        for (int lane = 0; lane < count; ++lane)
          for (size_t j = 0; j < row; j += kLanes) {
            float* at = turned + (c + lane) * BT + j;
            store(at, load(at) * splat(kept[lane]));
          }
      });
    }
    transpose(k + row * padded, padded, kBlockRows, K, turned + row, BT);
  }
}

}  // namespace mlxts
