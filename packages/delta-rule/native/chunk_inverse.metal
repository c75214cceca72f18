// One threadgroup: X = (I + A)⁻¹ of one chunk of one head. A simdgroup has a column of 8 × 8 blocks of X and keeps it
// in registers: block forward substitution, X_ij = −X_ii Σ A_im X_mj, which needs of the others only the blocks X_ii.
#include "chunk_inverse.params.h"
#include "chunk_metal.h"
#include "metal_matrix.h"

using namespace metal;
using namespace mlxts;

typedef simdgroup_float8x8 Block;

METAL_FUNC Block load_block(threadgroup const float* from, uint stride) {
  Block block;
  simdgroup_load(block, from, stride);
  return block;
}

// Column `column` of the inverse of a unit lower triangular 8 × 8 block, by forward substitution.
METAL_FUNC void invert_column(threadgroup const float* a, uint stride, uint column, threadgroup float* inverse) {
  float x[8];
  MLXTS_UNROLL
  for (uint i = 0; i < 8; ++i) {
    float sum = i == column ? 1.0f : 0.0f;
    MLXTS_UNROLL
    for (uint m = 0; m < i; ++m) sum -= a[i * stride + m] * x[m];
    x[i] = sum;
    inverse[i * 8 + column] = sum;
  }
}

kernel void chunk_inverse_f32(device const float* a [[buffer(CHUNK_INVERSE_A)]],
                              device const Index* cuSeqlens [[buffer(CHUNK_INVERSE_CU_SEQLENS)]],
                              device float* x [[buffer(CHUNK_INVERSE_X)]],
                              constant ChunkInverseParams& p [[buffer(CHUNK_INVERSE_PARAMS)]],
                              device MlxtsFault* fault [[buffer(CHUNK_INVERSE_FAULT)]],
                              threadgroup uchar* memory [[threadgroup(0)]],
                              uint3 group [[threadgroup_position_in_grid]], uint3 groups [[threadgroups_per_grid]],
                              uint3 size [[threads_per_threadgroup]], uint index [[thread_index_in_threadgroup]],
                              uint lane [[thread_index_in_simdgroup]],
                              uint simdgroup [[simdgroup_index_in_threadgroup]]) {
  const auto scratch = scratch_of(memory, p);
  const Indices cuts = {cuSeqlens, bool(p.present & CHUNK_INVERSE_HAS_CU_SEQLENS)};
  const ChunkPlace place =
      threadgroup_place(p, cuts, group, groups.x, {fault, lane}, CHUNK_INVERSE_FAULT_CU_SEQLENS, scratch.place, index);
  if (place.rows == 0) return;
  const uint length = p.chunkLength, stride = length + CHUNK_INVERSE_GAP;
  const ulong start = (place.token * p.heads + place.head) * length;
  const uint rowStride = p.heads * length, blocks = (place.rows + 7) / 8;
  const uint from = index % length;
  for (uint row = index / length; row < blocks * 8; row += size.x / length)
    if (from / 8 <= row / 8)
      scratch.a[row * stride + from] = row < place.rows && from < row ? a[start + row * rowStride + from] : 0.0f;
  // X may lie where A does: all of A is read before any of X is written.
  threadgroup_barrier(mem_flags::mem_threadgroup | mem_flags::mem_device);
  const uint own = simdgroup;
  if (own < blocks && lane < 8)
    invert_column(scratch.a + own * 8 * (stride + 1), stride, lane, scratch.diagonalInverses + own * 64);
  threadgroup_barrier(mem_flags::mem_threadgroup);

  Block column[8];
  MLXTS_UNROLL
  for (uint i = 0; i < 8; ++i) {
    column[i] = make_filled_simdgroup_matrix<float, 8, 8>(0.0f);
    if (i >= blocks) continue;
    if (i >= own) {
      const Block diagonal = load_block(scratch.diagonalInverses + i * 64, 8);
      Block sum = make_filled_simdgroup_matrix<float, 8, 8>(0.0f);
      MLXTS_UNROLL
      for (uint m = 0; m < i; ++m)
        if (m >= own)
          simdgroup_multiply_accumulate(sum, load_block(scratch.a + i * 8 * stride + m * 8, stride), column[m], sum);
      sum.thread_elements() *= -1.0f;
      if (i == own)
        column[i] = diagonal;
      else
        simdgroup_multiply(column[i], diagonal, sum);
    }
    const uint row = i * 8 + matrix_row(lane);
    if (row < place.rows)
      for (uint e = 0; e < 2; ++e)
        x[start + row * rowStride + own * 8 + matrix_column(lane) + e] = column[i].thread_elements()[e];
  }
}
