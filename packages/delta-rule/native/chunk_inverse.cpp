// One threadgroup: X = (I + A)⁻¹ of one chunk of one head, by forward substitution in blocks of rows. A may be X.
#include "chunk.h"
#include "chunk_inverse.params.h"

using namespace mlxts;

namespace {

int32_t chunk_inverse(const Launch& l) {
  const auto& p = l.args<ChunkInverseParams>();
  const Indices cu_seqlens = l.indices(CHUNK_INVERSE_CU_SEQLENS);
  if (!packed_right(cu_seqlens, p.sequences, p.tokens, l, CHUNK_INVERSE_FAULT_CU_SEQLENS)) return 1;
  const size_t BT = p.chunkLength, stride = size_t(p.heads) * BT;
  const auto scratch = scratch_of(l, p);
  for (uint64_t group = l.begin; group < l.end; ++group) {
    const ChunkPlace chunk = chunk_of_threadgroup(l, p, cu_seqlens, group);
    const size_t at = (chunk.token * p.heads + chunk.head) * BT;
    invert(chunk.rows, BT, l.buffer<const float>(CHUNK_INVERSE_A) + at, stride, scratch.inverse);
    float* X = l.buffer<float>(CHUNK_INVERSE_X) + at;
    for (size_t i = 0; i < chunk.rows; ++i) memcpy(X + i * stride, scratch.inverse + i * BT, BT * sizeof(float));
  }
  return 0;
}

}  // namespace

MLXTS_KERNEL(chunk_inverse_f32, chunk_inverse)
