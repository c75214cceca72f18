// For CPU kernels where each channel of a key has its own gate: the decays of a chunk's rows, and the products
// Σ_c x_ic k_jc exp(G_ic − G_jc) of its rows.
#pragma once
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
  float* x;           // [n, stride]; overwritten by x_i exp(G_i − G_b), where b is the first row of i's block
  float* keys;        // [n, stride]; overwritten
  float* steps;       // [n, stride], row i from 1 on: exp(G_i − G_{i−1})
  float* transposed;  // [K, BT]: keys of earlier blocks, decayed to the first row of this one
  size_t K, BT, stride;
};

// Before a kernel's first chunk; what it puts into the rows leaves the zeros beyond K as they are.
inline void clear_beyond(ChannelRows r) {
  if (r.stride == r.K) return;
  for (float* rows : {r.x, r.keys, r.steps}) memset(rows, 0, r.BT * r.stride * sizeof(float));
}

// Products of the rows within a block, from its first row on, to [kBlockRows, kBlockRows], for j < i or j ≤ i. The
// decay between two rows is the product of the steps between them.
template <bool kInclusive>
void block_products(size_t rows, size_t stride, const float* x, const float* keys, const float* steps, float* to) {
  // Columns j and j + 1 at a time, kept in registers for N vectors of channels while rows go by.
  const auto columns = [&](auto count, size_t j) {
    constexpr int C = decltype(count)::value;
    vf32 sums[C][kBlockRows + 3] = {};
    const auto segment = [&](auto vectors, size_t at) {
      constexpr int N = decltype(vectors)::value;
      vf32 key[C][N];
      const auto row = [&](size_t i, int first, int last) {
        const size_t from = i * stride + at;
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
        for (int n = 0; n < N; ++n) key[s][n] = load(keys + (j + s) * stride + at + n * kLanes);
      }
      for (int s = 0; s < C; ++s) row(j + s, s, kInclusive ? s + 1 : s);
      for (size_t i = j + C; i < rows; ++i) row(i, C, C);
    };
    size_t at = 0;
    for (; at + 4 * kLanes <= stride; at += 4 * kLanes) segment(std::integral_constant<int, 4>{}, at);
    for (; at < stride; at += kLanes) segment(std::integral_constant<int, 1>{}, at);
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

// The block on the diagonal from row `first` on, rounded to T, and zeros to its right, up to column BT.
template <typename T, bool kInclusive>
void diagonal_products(ChannelRows r, size_t first, size_t rows, float* to, size_t to_stride) {
  float block[kBlockRows * kBlockRows] = {};
  const size_t at = first * r.stride;
  block_products<kInclusive>(rows, r.stride, r.x + at, r.keys + at, r.steps + at, block);
  for (size_t i = 0; i < rows; ++i) {
    float* out = to + (first + i) * to_stride;
    for (size_t j = 0; j < kBlockRows; j += kLanes) {
      const vi32 column = lane_index() + splat_i32(j), most = splat_i32(i);
      const vi32 seen = kInclusive ? column <= most : column < most;
      store(out + first + j, select(seen, round_to<T>(load(block + i * kBlockRows + j)), vf32{}));
    }
    for (size_t j = first + kBlockRows; j < r.BT; j += kLanes) store(out + j, vf32{});
  }
}

// Products of a block's rows with those of earlier blocks, rounded to T.
template <typename T>
void earlier_products(ChannelRows r, size_t first, size_t rows, float* to, size_t to_stride) {
  for (size_t c = 0; c < r.stride; c += kLanes) {
    vf32 decay = splat(1.0f);
    for (size_t i = first + 1; i < first + rows; ++i) {
      decay *= load(r.steps + i * r.stride + c);
      store(r.x + i * r.stride + c, load(r.x + i * r.stride + c) * decay);
    }
  }
  const auto product = [&](auto tile) {
    tile.accumulate(r.x + tile.row * r.stride, r.stride, 1, r.transposed + tile.column, r.BT, r.K);
    tile.each([&](size_t i, size_t j, vf32 sum) { store(to + i * to_stride + j, round_to<T>(sum)); });
  };
  size_t i = first;
  for (; i + kTileRows <= first + rows; i += kTileRows) for_tiles_of_row<kTileRows>(i, first, product);
  for (; i < first + rows; ++i) for_tiles_of_row<1>(i, first, product);
}

// Decays the keys of all blocks so far to the first row of the next one, exp(G_next − G_j) k_j, and adds those of the
// block from row `first` on.
inline void decay_keys(ChannelRows r, CumulativeGateTensors G, size_t first) {
  const size_t next = first + kBlockRows;
  for (size_t c = 0; c < r.stride; c += kLanes) {
    vf32 decay = splat(1.0f);
    for (size_t j = next; j-- > first;) {
      decay *= load(r.steps + (j + 1) * r.stride + c);
      store(r.keys + j * r.stride + c, load(r.keys + j * r.stride + c) * decay);
    }
  }
  if (first > 0) {
    float decays[kLanes];
    decays_between(G, next, first, r.K, [&](size_t c, int width, vf32 decay) {
      store(decays, decay);
      for (int lane = 0; lane < width; ++lane)
        for (size_t j = 0; j < first; j += kLanes) {
          float* at = r.transposed + (c + lane) * r.BT + j;
          store(at, load(at) * splat(decays[lane]));
        }
    });
  }
  transpose(r.keys + first * r.stride, r.stride, kBlockRows, r.K, r.transposed + first, r.BT);
}

// Σ_c x_ic k_jc exp(G_ic − G_jc), rounded to T, for j < i or j ≤ i and 0 else, for n rows of BT columns that lie
// `to_stride` apart.
template <typename T, bool kInclusive>
void channel_products(size_t n, ChannelRows r, CumulativeGateTensors G, float* to, size_t to_stride) {
  for (size_t i = 1; i < n; ++i)
    decays_between(G, i, i - 1, r.K, [&](size_t c, int, vf32 step) { store(r.steps + i * r.stride + c, step); });
  for (size_t first = 0; first < n; first += kBlockRows) {
    const size_t rows = n - first < kBlockRows ? n - first : kBlockRows;
    diagonal_products<T, kInclusive>(r, first, rows, to, to_stride);
    earlier_products<T>(r, first, rows, to, to_stride);
    if (first + kBlockRows < n) decay_keys(r, G, first);
  }
}

}  // namespace mlxts
