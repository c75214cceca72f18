// A threadgroup has a query row. Its pieces are added in order, each multiplied by exp(its maximum − the largest maximum).
// A lane has the softmax of two pieces, then columns of the sums.
#include "latent_pieces.h"
#include "mla_merge.params.h"

using namespace metal;
using namespace mlxts;

// Maximum and denominator of a piece; those of no keys beyond the last piece.
METAL_FUNC float2 softmax_of(device const float* first, ulong stride, uint piece, uint pieces) {
  return piece < pieces ? float2(first[piece * stride], first[piece * stride + 1]) : float2(-INFINITY, 0.0f);
}

kernel void mla_merge_f32(device const float* partial [[buffer(MLA_MERGE_PARTIAL)]],
                          device const Index* lengths [[buffer(MLA_MERGE_LENGTHS)]],
                          device float* vc [[buffer(MLA_MERGE_VC)]], device float* lse [[buffer(MLA_MERGE_LSE)]],
                          constant MlaMergeParams& p [[buffer(MLA_MERGE_PARAMS)]],
                          uint2 group [[threadgroup_position_in_grid]], uint index [[thread_index_in_threadgroup]],
                          uint2 size [[threads_per_threadgroup]], uint lane [[thread_index_in_simdgroup]]) {
  static_assert(MLA_PIECES_MAX_PIECES == 2 * kSimd, "a lane has two pieces");
  const uint row = group.x, sequence = group.y;
  // A wrong length has been reported, and must not lead out of bounds; nor must one that has changed.
  const uint length = simd_broadcast_first(length_at({lengths, true}, sequence, 0, p.capacity));
  const uint pieces = pieces_of(length, p.mostPieces);
  const ulong stride = ulong(p.rows) * partial_size(p.rank), out = ulong(sequence) * p.rows + row;
  device const float* first = partial + partial_address(sequence, 0, p.pieces, row, p.rows, p.rank);
  const float2 a = softmax_of(first, stride, lane, pieces), b = softmax_of(first, stride, lane + kSimd, pieces);
  const float maximum = simd_max(max(a.x, b.x));
  // Where the largest maximum is −∞, any base gives exp(−∞) = 0.
  const float base = maximum == -INFINITY ? 0.0f : maximum;
  const float2 factors = float2(precise::exp(a.x - base), precise::exp(b.x - base));
  const float denominator = simd_sum(a.y * factors.x + b.y * factors.y);
  const bool none = denominator == 0.0f;
  if (p.present & MLA_MERGE_HAS_LSE && index == 0) lse[out] = none ? -INFINITY : maximum + precise::log(denominator);
  const float inverse = none ? 0.0f : 1.0f / denominator;
  for (uint begin = 0; begin < p.rank; begin += size.x) {
    const uint column = begin + index;
    float value = 0.0f;
    for (uint i = 0; i < pieces; ++i) {
      const float factor = simd_shuffle(i < kSimd ? factors.x : factors.y, ushort(i % kSimd));
      if (column < p.rank) value = fma(first[i * stride + MLA_PIECES_SOFTMAX_SIZE + column], factor, value);
    }
    if (column < p.rank) vc[out * p.rank + column] = value * inverse;
  }
}
