// What the stages of the chunk pipeline share: where a chunk lies, and its cumulated gates.
#pragma once
#include "linalg.h"

namespace mlxts {

// Cumulated gates of one chunk and head as pairs (hi, lo); lo is 0 where none is carried.
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
  // exp(G_i − G_j) for a vector of j.
  MLXTS_INLINE vf32 difference(size_t i, size_t j) const {
    return (splat(hi[i]) - load(hi + j)) + (splat(lo[i]) - load(lo + j));
  }
  // exp(G_i) of all rows, up to a whole vector.
  void decays(float* to, size_t n) const {
    for (size_t i = 0; i < n; i += kLanes) store(to + i, exp(load(hi + i)) * (splat(1.0f) + load(lo + i)));
  }
  // exp(G_last − G_i) of all rows, up to a whole vector.
  void decays_to(size_t last, float* to) const {
    for (size_t i = 0; i <= last; i += kLanes) store(to + i, exp(difference(last, i)));
  }
};

// Where one chunk of one head lies.
struct ChunkPlace {
  size_t sequence, head, key_head = 0, chunk, token, rows;

  template <typename Params>
  ChunkPlace(const Params& p, uint64_t group, uint64_t chunks) {
    chunk = group % chunks;
    head = group / chunks % p.heads;
    sequence = group / chunks / p.heads;
    if constexpr (requires { p.keyHeads; }) key_head = head / (p.heads / p.keyHeads);
    token = sequence * p.tokens + chunk * p.chunkLength;
    const size_t left = p.tokens - chunk * p.chunkLength;
    rows = left < p.chunkLength ? left : p.chunkLength;
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
  for (size_t i = 0; i < rows; ++i) widen_row(scratch + i * columns, from + i * stride, columns);
  return {scratch, columns};
}

// columns × rows of f32 with zeros from `rows` up to `stride`.
inline void transpose_padded(WideRows from, size_t rows, size_t columns, float* to, size_t stride) {
  if (rows < stride)
    for (size_t c = 0; c < columns; ++c) memset(to + c * stride + rows, 0, (stride - rows) * sizeof(float));
  transpose(from.data, from.stride, rows, columns, to, stride);
}

}  // namespace mlxts
