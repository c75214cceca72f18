// What the CPU kernels of the chunk pipeline share: the chunk of a threadgroup, rows and states in scratch, and the
// products of a chunk.
#pragma once
#include "chunk_place.h"
#include "cumulative_gates.h"
#include "matrix_microkernel.h"
#include "matrix_transpose.h"

namespace mlxts {

// Where stages are launched for slots, heads and rows of tokens.
template <typename Params>
MLXTS_INLINE ChunkPlace chunk_of_threadgroup(const Launch& l, const Params& p, Indices cu_seqlens, uint64_t group) {
  const uint64_t slots = l.threadgroups[0];
  return chunk_place(p, cu_seqlens, group % slots, slots, group / slots % p.heads, group / slots / p.heads);
}

// Rows in f32: as they lie, or widened into `scratch`, `scratch_stride` apart.
struct WideRows {
  const float* data;
  size_t stride;
};
MLXTS_INLINE WideRows widen_rows(const float* from, size_t stride, size_t, size_t, float*, size_t) {
  return {from, stride};
}
template <typename T>
MLXTS_INLINE WideRows widen_rows(const T* from, size_t stride, size_t rows, size_t columns, float* scratch,
                                 size_t scratch_stride) {
  for (size_t i = 0; i < rows; ++i) convert_row(from + i * stride, columns, scratch + i * scratch_stride);
  return {scratch, scratch_stride};
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

// The products of one chunk that both the stages and the fused kernel make. Its matrices have BT columns, and n rows.

// A_ij = (β_i k_i · k_j) exp(G_i − G_j) for j < i, else 0; `products(tile)` sums up the dot products of a tile.
template <typename Products>
MLXTS_INLINE void decayed_kkt(size_t n, size_t BT, const CumulativeGates& G, float* A, size_t stride,
                              Products products) {
  for_tiles(
      n, [](size_t end) { return end - 1; },
      [&](auto tile) {
        products(tile);
        tile.each([&](size_t i, size_t j, vf32 dot) {
          const vi32 below = lane_index() + splat_i32(j) < splat_i32(i);
          const vf32 decay = exp(select(below, G.difference(i, j), vf32{}));
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
MLXTS_INLINE void decayed_scores(size_t n, size_t BT, const CumulativeGates& G, float* P, Products products) {
  for_tiles(
      n, [](size_t end) { return end; },
      [&](auto tile) {
        products(tile);
        tile.each([&](size_t i, size_t j, vf32 dot) {
          const vi32 seen = lane_index() + splat_i32(j) <= splat_i32(i);
          const vf32 kept = exp(select(seen, G.difference(i, j), vf32{}));
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
