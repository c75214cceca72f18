// One threadgroup: X = (I + A)⁻¹ of one chunk of one head, by forward substitution in blocks of rows. A may be X.
#include "chunk.h"
#include "chunk_inverse.params.h"
#include "cpu_kernel.h"

using namespace mlxts;

namespace {

int32_t chunk_inverse(const Launch& l) {
  const auto& p = l.args<ChunkInverseParams>();
  const Indices cu_seqlens = l.indices(CHUNK_INVERSE_CU_SEQLENS);
  if (!packed_right(cu_seqlens, p.sequences, p.tokens, l, CHUNK_INVERSE_FAULT_CU_SEQLENS)) return 1;
  const size_t BT = p.chunkLength, stride = size_t(p.heads) * BT;
  float* inverse = static_cast<float*>(l.scratch);  // [BT, BT]
  for (uint64_t group = l.begin; group < l.end; ++group) {
    const ChunkPlace place(p, cu_seqlens, group, l.threadgroups[0]);
    const size_t at = (place.token * p.heads + place.head) * BT;
    const float* A = l.buffer<const float>(CHUNK_INVERSE_A) + at;
    float* X = l.buffer<float>(CHUNK_INVERSE_X) + at;
    invert(place.rows, BT, A, stride, inverse);
    for (size_t i = 0; i < place.rows; ++i) memcpy(X + i * stride, inverse + i * BT, BT * sizeof(float));
  }
  return 0;
}

}  // namespace

MLXTS_KERNEL(chunk_inverse_f32, chunk_inverse)
