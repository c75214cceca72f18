// One threadgroup: X = (I + A)⁻¹ of one chunk of one head, by forward substitution in blocks of rows. A may be X.
#include "chunk.h"
#include "chunk_inverse.params.h"
#include "cpu_kernel.h"

using namespace mlxts;

namespace {

void chunk_inverse(const Launch& l) {
  const auto& p = l.args<ChunkInverseParams>();
  const size_t BT = p.chunkLength, stride = size_t(p.heads) * BT;
  float* inverse = static_cast<float*>(l.scratch);  // [BT, BT]
  for (uint64_t group = l.begin; group < l.end; ++group) {
    const ChunkPlace place(p, group, l.threadgroups[0]);
    const size_t at = (place.token * p.heads + place.head) * BT;
    const float* A = l.buffer<const float>(CHUNK_INVERSE_A) + at;
    float* X = l.buffer<float>(CHUNK_INVERSE_X) + at;
    // Rows start as −Σ A_im X_mj over the m of earlier blocks of rows …
    const auto block = [&](auto tile) {
      const size_t row = tile.row;
      tile.accumulate(A + row * stride, stride, 1, inverse + tile.column, BT, row);
      tile.each([&](size_t i, size_t j, vf32 sum) { store(inverse + i * BT + j, vf32{} - sum); });
    };
    // … then take the terms within their own block, row after row.
    const auto finish = [&](size_t row, size_t rows) {
      for (size_t i = row; i < row + rows; ++i) {
        float* to = inverse + i * BT;
        for (size_t m = row; m < i; ++m) {
          const vf32 a = splat(A[i * stride + m]);
          for (size_t j = 0; j <= m; j += kLanes) store(to + j, load(to + j) - a * load(inverse + m * BT + j));
        }
        to[i] = 1.0f;
      }
    };
    memset(inverse, 0, BT * BT * sizeof(float));
    size_t row = 0;
    for (; row + kTileRows <= place.rows; row += kTileRows) {
      tile_row<kTileRows>(row, row, block);
      finish(row, kTileRows);
    }
    for (; row < place.rows; ++row) {
      tile_row<1>(row, row, block);
      finish(row, 1);
    }
    for (size_t i = 0; i < place.rows; ++i) memcpy(X + i * stride, inverse + i * BT, BT * sizeof(float));
  }
}

}  // namespace

MLXTS_KERNEL(chunk_inverse_f32, chunk_inverse)
