// What the stages of the chunk pipeline share: where a chunk lies, and its cumulated gates.
#pragma once
#include "matrix_microkernel.h"
#include "matrix_transpose.h"
#include "sequences.h"

namespace mlxts {

// The gates' ln(decay), of a vector; a factor of 0: the gate is the decay itself.
MLXTS_INLINE vf32 log_decay(vf32 gates, float factor) {
  if (factor != 0) return gates * splat(factor);
  // A subnormal decay counts as 0: it keeps nothing that a sum of f32 could tell.
  return select(gates < splat(0x1p-126f), splat(-104.0f), select(gates != gates, gates, log(gates)));
}

// Cumulated gates of one chunk and head as sums of two floats, hi + lo; lo is 0 where none is carried.
struct Gates {
  float* hi;  // [chunkLength], zeros up to a whole vector
  float* lo;

  static constexpr size_t scratch(size_t chunk_length) { return 2 * (chunk_length + 16); }

  // Reads n gates that lie `stride` apart.
  void gather(float* scratch, size_t chunk_length, const float* g, const float* low, size_t stride, size_t n) {
    hi = scratch;
    lo = scratch + chunk_length + 16;
    memset(scratch, 0, this->scratch(chunk_length) * sizeof(float));
    for (size_t i = 0; i < n; ++i) {
      hi[i] = g[i * stride];
      if (low) lo[i] = low[i * stride];
    }
  }
  // Sums up ln(decay) of n gates that lie `stride` apart, 0 for the tokens that `mask` skips; lo, if asked for,
  // collects what each addition to hi rounds away.
  void sum(float* scratch, size_t chunk_length, const float* g, size_t stride, size_t n, float factor,
           const uint8_t* mask, bool compensated) {
    gather(scratch, chunk_length, g, nullptr, stride, n);
    if (factor != 1)
      for (size_t i = 0; i < n; i += kLanes) store(hi + i, log_decay(load(hi + i), factor));
    if (mask)
      for (size_t i = 0; i < n; ++i)
        if (!mask[i]) hi[i] = 0;
    float high = 0, low = 0;
    for (size_t i = 0; i < n; ++i) {
      const float x = hi[i], s = high + x, back = s - high;
      low += (high - (s - back)) + (x - back);
      hi[i] = high = s;
      if (compensated) lo[i] = low;
    }
  }
  // exp(G_i − G_j) for a vector of j.
  MLXTS_INLINE vf32 difference(size_t i, size_t j) const {
    return (splat(hi[i]) - load(hi + j)) + (splat(lo[i]) - load(lo + j));
  }
  MLXTS_INLINE float decay(size_t i) const { return (exp(splat(hi[i])) * (splat(1.0f) + splat(lo[i])))[0]; }
  // exp(G_i) of all rows, up to a whole vector.
  void decays(float* to, size_t n) const {
    for (size_t i = 0; i < n; i += kLanes) store(to + i, exp(load(hi + i)) * (splat(1.0f) + load(lo + i)));
  }
  // exp(G_last − G_i) of all rows, up to a whole vector.
  void decays_to(size_t last, float* to) const {
    for (size_t i = 0; i <= last; i += kLanes) store(to + i, exp(difference(last, i)));
  }
};

// The chunks of one sequence.
struct Chunks {
  Sequence all;
  size_t begin, tokens;  // without the last ones, if those are left to others
  size_t slot;           // of the first chunk

  template <typename Params>
  Chunks(const Params& p, const Indices& cu_seqlens, size_t sequence) {
    all = sequence_at(cu_seqlens, sequence, p.tokens);
    begin = all.begin;
    tokens = chunked_tokens(all.tokens, p.chunkLength, p.lastTokens);
    slot = first_slot(bool(cu_seqlens), sequence, begin, p.tokens, p.chunkLength);
  }
  // Rows of a chunk; 0 beyond the end.
  size_t rows(size_t chunk, size_t chunk_length) const {
    return chunk_rows(tokens, chunk, chunk_length);
  }
};

// The chunk of a threadgroup of stages that are launched for slots, heads and rows of tokens; it may have no rows.
struct ChunkPlace {
  size_t head, key_head = 0, slot, token, rows;

  template <typename Params>
  ChunkPlace(const Params& p, const Indices& cu_seqlens, uint64_t group, uint64_t slots) {
    head = group / slots % p.heads;
    slot = group / slots / p.heads * slots + group % slots;
    if constexpr (requires { p.keyHeads; }) key_head = key_head_of(head, p.headsPerKey, p.keyHeads);
    const Slot at = slot_at(cu_seqlens, slot, p.sequences, p.tokens, slots, p.chunkLength);
    const Chunks chunks(p, cu_seqlens, at.sequence);
    rows = chunks.rows(at.chunk, p.chunkLength);
    token = chunks.begin + at.chunk * p.chunkLength;
  }
};

// Rows in f32: as they lie, or widened into `scratch` [rows, columns].
struct WideRows {
  const float* data;
  size_t stride;
};
MLXTS_INLINE WideRows widen_rows(const float* from, size_t stride, size_t, size_t, float*) { return {from, stride}; }
template <typename T>
MLXTS_INLINE WideRows widen_rows(const T* from, size_t stride, size_t rows, size_t columns, float* scratch) {
  for (size_t i = 0; i < rows; ++i) convert_row(from + i * stride, columns, scratch + i * columns);
  return {scratch, columns};
}

// columns × rows of f32 with zeros from `rows` up to `stride`.
inline void transpose_padded(WideRows from, size_t rows, size_t columns, float* to, size_t stride) {
  if (rows < stride)
    for (size_t c = 0; c < columns; ++c) memset(to + c * stride + rows, 0, (stride - rows) * sizeof(float));
  transpose(from.data, from.stride, rows, columns, to, stride);
}

// States are kept transposed, columns of K by rows of V, `rows` of them from row `first` on with zeros up to `stride`.
// In memory element [v, k] lies at v·row_stride + k·column_stride; one of the two is 1.
template <typename Params>
void read_state(const Params& p, const float* from, size_t first, size_t rows, float* to, size_t stride) {
  if (p.columnStride == 1)
    return transpose_padded({from + first * p.rowStride, p.rowStride}, rows, p.keyDim, to, stride);
  for (size_t c = 0; c < p.keyDim; ++c) {
    memcpy(to + c * stride, from + c * p.columnStride + first, rows * sizeof(float));
    memset(to + c * stride + rows, 0, (stride - rows) * sizeof(float));
  }
}
template <typename Params>
void write_state(const Params& p, const float* from, size_t stride, size_t first, size_t rows, float* to) {
  if (p.columnStride == 1) return transpose(from, stride, p.keyDim, rows, to + first * p.rowStride, p.rowStride);
  for (size_t c = 0; c < p.keyDim; ++c)
    memcpy(to + c * p.columnStride + first, from + c * stride, rows * sizeof(float));
}

// Makes the rows of tokens that the mask skips zeros.
template <typename T>
void clear_skipped(const uint8_t* mask, size_t rows, T* to, size_t stride, size_t columns) {
  for (size_t i = 0; i < rows; ++i)
    if (!mask[i]) memset(to + i * stride, 0, columns * sizeof(T));
}

// The steps of one chunk that both the stages and the fused kernel take. Matrices of a chunk have BT columns; n of its
// rows are real.

// A_ij = (β_i k_i · k_j) exp(G_i − G_j) for j < i, else 0; `products(tile)` sums up the dot products of a tile.
template <typename Products>
MLXTS_INLINE void decayed_kkt(size_t n, size_t BT, const Gates& gates, float* A, size_t stride, Products products) {
  for_tiles(
      n, [](size_t end) { return end - 1; },
      [&](auto tile) {
        products(tile);
        tile.each([&](size_t i, size_t j, vf32 dot) {
          const vi32 below = lane_index() + splat_i32(j) < splat_i32(i);
          const vf32 decay = exp(select(below, gates.difference(i, j), vf32{}));
          store(A + i * stride + j, select(below, dot * decay, vf32{}));
        });
      });
  // What no tile covered: columns from the last tile to the end of the row.
  for (size_t i = 0; i < n; ++i) {
    const size_t tile = i / kTileRows * kTileRows, end = tile + kTileRows <= n ? tile + kTileRows : i + 1;
    for (size_t j = round_up(end - 1, kLanes); j < BT; j += kLanes) store(A + i * stride + j, vf32{});
  }
}

// X = (I + A)⁻¹ by forward substitution in blocks of rows; A is read below its diagonal only. X [n, BT].
MLXTS_INLINE void invert(size_t n, size_t BT, const float* A, size_t stride, float* X) {
  // Rows start as −Σ A_im X_mj over the m of earlier blocks of rows …
  const auto block = [&](auto tile) {
    const size_t row = tile.row;
    tile.accumulate(A + row * stride, stride, 1, X + tile.column, BT, row);
    tile.each([&](size_t i, size_t j, vf32 sum) { store(X + i * BT + j, vf32{} - sum); });
  };
  // … then take the terms within their own block, row after row.
  const auto finish = [&](size_t row, size_t rows) {
    for (size_t i = row; i < row + rows; ++i) {
      float* to = X + i * BT;
      for (size_t m = row; m < i; ++m) {
        const vf32 a = splat(A[i * stride + m]);
        for (size_t j = 0; j <= m; j += kLanes) store(to + j, load(to + j) - a * load(X + m * BT + j));
      }
      to[i] = 1.0f;
    }
  };
  memset(X, 0, n * BT * sizeof(float));
  size_t row = 0;
  for (; row + kTileRows <= n; row += kTileRows) {
    for_tiles_of_row<kTileRows>(row, row, block);
    finish(row, kTileRows);
  }
  for (; row < n; ++row) {
    for_tiles_of_row<1>(row, row, block);
    finish(row, 1);
  }
}

// P_ij = round((q_i · k_j) exp(G_i − G_j)) for j ≤ i, else 0, as far as tiles go; P [n, BT].
template <typename T, typename Products>
MLXTS_INLINE void decayed_scores(size_t n, size_t BT, const Gates& gates, float* P, Products products) {
  for_tiles(
      n, [](size_t end) { return end; },
      [&](auto tile) {
        products(tile);
        tile.each([&](size_t i, size_t j, vf32 dot) {
          const vi32 seen = lane_index() + splat_i32(j) <= splat_i32(i);
          const vf32 kept = exp(select(seen, gates.difference(i, j), vf32{}));
          store(P + i * BT + j, select(seen, round_to<T>(dot * kept), vf32{}));
        });
      });
}

// to[i] = round(factor[i] · from[i]) for n rows of `columns`, zeros up to a whole vector.
template <typename T, typename S>
MLXTS_INLINE void scale_rows(size_t n, size_t columns, const float* factor, const S* from, size_t from_stride,
                             float* to, size_t to_stride) {
  for (size_t i = 0; i < n; ++i) {
    const S* row = from + i * from_stride;
    const vf32 f = splat(factor[i]);
    for_lanes(
        columns, [&](size_t c) { store(to + i * to_stride + c, round_to<T>(load(row + c) * f)); },
        [&](size_t c, int m) { store(to + i * to_stride + c, round_to<T>(load_partial(row + c, m) * f)); });
  }
}

}  // namespace mlxts
