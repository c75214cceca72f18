// For CPU kernels where each channel of a key has its own gate: the decays of a chunk's rows, and the products
// Σ_c x_ic k_jc exp(G_ic − G_jc) of its rows.
#pragma once
#include <initializer_list>

#include "chunk.h"
#include "matrix_reduce.h"

namespace mlxts {

// body(c, width, load_row) for the vectors of K channels; load_row(row) loads the one from channel c on.
template <typename Body>
MLXTS_INLINE void for_channels(size_t K, Body body) {
  for_lanes(
      K, [&](size_t c) { body(c, kLanes, [c](const float* row) { return load(row + c); }); },
      [&](size_t c, int n) { body(c, n, [c, n](const float* row) { return load_partial(row + c, n); }); });
}

// body(c, width, exp(G_i − G_j)) for the vectors of K channels.
template <typename Body>
MLXTS_INLINE void decays_between(CumulativeGateTensors G, size_t i, size_t j, size_t K, Body body) {
  const float *from = G.high + i * G.stride, *to = G.high + j * G.stride;
  if (G.low) {
    const float *from_low = G.low + i * G.stride, *to_low = G.low + j * G.stride;
    for_channels(
        K, [&](size_t c, int n, auto row) { body(c, n, exp((row(from) - row(to)) + (row(from_low) - row(to_low)))); });
  } else {
    for_channels(K, [&](size_t c, int n, auto row) { body(c, n, exp(row(from) - row(to))); });
  }
}

// body(c, width, exp(G_i)), the same.
template <typename Body>
MLXTS_INLINE void decays_of(CumulativeGateTensors G, size_t i, size_t K, Body body) {
  const float *from = G.high + i * G.stride, *low = G.low ? G.low + i * G.stride : nullptr;
  for_channels(K, [&](size_t c, int n, auto row) {
    const vf32 decay = exp(row(from));
    body(c, n, low ? decay * (splat(1.0f) + row(low)) : decay);
  });
}

// Rows of a block: products within one are summed element by element, those with earlier blocks by matrix products of
// rows that are decayed to the block's first row.
inline constexpr size_t kBlockRows = 16;

// The rows of a chunk whose products are wanted, in scratch; `stride` apart, with zeros beyond K.
struct ChannelRows {
  float* keys;        // [n, stride]; overwritten
  float* steps;       // [n, stride], row i from 1 on: exp(G_i − G_{i−1})
  float* transposed;  // [K, BT]: keys of earlier blocks, decayed to the first row of this one
  size_t K, BT, stride;
};

// The rows x that meet the keys in one product, and where its n rows of BT columns go. Inclusive: for j ≤ i, rounded to
// T; else for j < i, as they are. Beyond these all is 0.
template <bool kInclusive>
struct ChannelProduct {
  static constexpr bool inclusive = kInclusive;
  float* x;  // [n, stride]; overwritten by x_i exp(G_i − G_b), where b is the first row of i's block
  float* to;
  size_t to_stride;

  template <typename T>
  static MLXTS_INLINE vf32 rounded(vf32 v) {
    if constexpr (kInclusive) return round_to<T>(v);
    return v;
  }
};

// Before a kernel's first chunk: zeros beyond K, which what it puts into the rows leaves as they are.
inline void clear_beyond(const ChannelRows& r, std::initializer_list<float*> others) {
  if (r.stride == r.K) return;
  for (float* rows : {r.keys, r.steps}) memset(rows, 0, r.BT * r.stride * sizeof(float));
  for (float* rows : others) memset(rows, 0, r.BT * r.stride * sizeof(float));
}

// exp(G_i − G_{i−1}) of n rows from the second on.
inline void steps_of(const ChannelRows& r, size_t n, CumulativeGateTensors G) {
  for (size_t i = 1; i < n; ++i)
    decays_between(G, i, i - 1, r.K, [&](size_t c, int, vf32 step) { store(r.steps + i * r.stride + c, step); });
}

typedef float ChannelBlock[kBlockRows * kBlockRows];

// Products of the rows within a block, from row `first` on. The decay between two rows is the product of the steps
// between them.
template <typename... Product>
void block_products(const ChannelRows& r, size_t first, size_t rows, ChannelBlock* to, const Product&... product) {
  constexpr int kProducts = sizeof...(Product);
  constexpr bool kInclusive[] = {Product::inclusive...};
  const size_t stride = r.stride;
  const float *x[] = {product.x + first * stride...}, *keys = r.keys + first * stride,
              *steps = r.steps + first * stride;
  // Columns j and j + 1 at a time, kept in registers for N vectors of channels while rows go by.
  const auto columns = [&](auto count, size_t j) {
    constexpr int C = decltype(count)::value;
    vf32 sums[kProducts][C][kBlockRows + 3] = {};
    const auto segment = [&](auto vectors, size_t at) {
      constexpr int N = decltype(vectors)::value;
      vf32 key[C][N];
      // Row i, which comes after `before` of the columns.
      const auto row = [&](size_t i, int before) {
        const size_t from = i * stride + at;
        MLXTS_UNROLL
        for (int n = 0; n < N; ++n) {
          const vf32 step = load(steps + from + n * kLanes);
          MLXTS_UNROLL
          for (int s = 0; s < C; ++s)
            if (s < before) key[s][n] *= step;
          MLXTS_UNROLL
          for (int l = 0; l < kProducts; ++l) {
            const vf32 left = load(x[l] + from + n * kLanes);
            MLXTS_UNROLL
            for (int s = 0; s < C; ++s)
              if (s < before + kInclusive[l]) sums[l][s][i] = fma(left, key[s][n], sums[l][s][i]);
          }
        }
      };
      MLXTS_UNROLL
      for (int s = 0; s < C; ++s) {
        MLXTS_UNROLL
        for (int n = 0; n < N; ++n) key[s][n] = load(keys + (j + s) * stride + at + n * kLanes);
      }
      for (int s = 0; s < C; ++s) row(j + s, s);
      for (size_t i = j + C; i < rows; ++i) row(i, C);
    };
    size_t at = 0;
    for (; at + 4 * kLanes <= stride; at += 4 * kLanes) segment(std::integral_constant<int, 4>{}, at);
    for (; at < stride; at += kLanes) segment(std::integral_constant<int, 1>{}, at);
    for (int l = 0; l < kProducts; ++l)
      for (int s = 0; s < C; ++s)
        for (size_t i = j; i < rows; i += 4) {
          const vf32x4 four = reduce_add4(sums[l][s] + i);
          for (size_t m = i; m < rows && m < i + 4; ++m) to[l][m * kBlockRows + j + s] = four[m - i];
        }
  };
  size_t j = 0;
  for (; j + 2 <= rows; j += 2) columns(std::integral_constant<int, 2>{}, j);
  if (j < rows) columns(std::integral_constant<int, 1>{}, j);
}

// A block on the diagonal, from row `first` on, and zeros to its right, up to column BT.
template <typename T, typename Product>
void store_block(const ChannelRows& r, size_t first, size_t rows, const ChannelBlock& block, const Product& product) {
  for (size_t i = 0; i < rows; ++i) {
    float* out = product.to + (first + i) * product.to_stride;
    for (size_t j = 0; j < kBlockRows; j += kLanes) {
      const vi32 column = lane_index() + splat_i32(j), most = splat_i32(i);
      const vi32 seen = Product::inclusive ? column <= most : column < most;
      store(out + first + j, select(seen, Product::template rounded<T>(load(block + i * kBlockRows + j)), vf32{}));
    }
    for (size_t j = first + kBlockRows; j < r.BT; j += kLanes) store(out + j, vf32{});
  }
}

// Products of a block's rows with those of earlier blocks.
template <typename T, typename Product>
void earlier_products(const ChannelRows& r, size_t first, size_t rows, const Product& product) {
  for (size_t c = 0; c < r.stride; c += kLanes) {
    vf32 decay = splat(1.0f);
    for (size_t i = first + 1; i < first + rows; ++i) {
      decay *= load(r.steps + i * r.stride + c);
      float* x = product.x + i * r.stride + c;
      store(x, load(x) * decay);
    }
  }
  const auto multiply = [&](auto tile) {
    tile.accumulate(product.x + tile.row * r.stride, r.stride, 1, r.transposed + tile.column, r.BT, r.K);
    tile.each([&](size_t i, size_t j, vf32 sum) {
      store(product.to + i * product.to_stride + j, Product::template rounded<T>(sum));
    });
  };
  size_t i = first;
  for (; i + kTileRows <= first + rows; i += kTileRows) for_tiles_of_row<kTileRows>(i, first, multiply);
  for (; i < first + rows; ++i) for_tiles_of_row<1>(i, first, multiply);
}

// Decays the keys of all blocks so far to the first row of the next one, exp(G_next − G_j) k_j, and adds those of the
// block from row `first` on.
inline void decay_keys(const ChannelRows& r, size_t first) {
  const size_t next = first + kBlockRows;
  float decays[kLanes];
  for (size_t c = 0; c < r.stride; c += kLanes) {
    vf32 decay = splat(1.0f);
    for (size_t j = next; j-- > first;) {
      decay *= load(r.steps + (j + 1) * r.stride + c);
      store(r.keys + j * r.stride + c, load(r.keys + j * r.stride + c) * decay);
    }
    if (first == 0) continue;
    store(decays, decay);
    for (size_t lane = 0; lane < kLanes && c + lane < r.K; ++lane)
      for (size_t j = 0; j < first; j += kLanes) {
        float* at = r.transposed + (c + lane) * r.BT + j;
        store(at, load(at) * splat(decays[lane]));
      }
  }
  transpose(r.keys + first * r.stride, r.stride, kBlockRows, r.K, r.transposed + first, r.BT);
}

// Σ_c x_ic k_jc exp(G_ic − G_jc) for n rows of each product.
template <typename T, typename... Product>
void channel_products(size_t n, const ChannelRows& r, const Product&... product) {
  for (size_t first = 0; first < n; first += kBlockRows) {
    const size_t rows = n - first < kBlockRows ? n - first : kBlockRows;
    ChannelBlock blocks[sizeof...(Product)] = {};
    block_products(r, first, rows, blocks, product...);
    int index = 0;
    (store_block<T>(r, first, rows, blocks[index++], product), ...);
    (earlier_products<T>(r, first, rows, product), ...);
    if (first + kBlockRows < n) decay_keys(r, first);
  }
}

}  // namespace mlxts
