// A threadgroup has a query row. Its pieces are added in order, each multiplied by exp(its maximum − the largest maximum).
// A lane has the softmax of two pieces, then four columns of the sums.
#include "latent_tile.h"
#include "mla_merge.params.h"

using namespace metal;
using namespace mlxts;

// Maximum and denominator of a piece; those of no keys beyond the last piece.
METAL_FUNC float2 softmax_of(device const float* first, ulong stride, uint piece, uint pieces) {
  return piece < pieces ? float2(first[piece * stride], first[piece * stride + 1]) : float2(-INFINITY, 0.0f);
}

// Pieces whose sums are on their way at once; factors of all are of the same half.
constant constexpr uint kAtOnce = 8;
static_assert(kSimd % kAtOnce == 0, "factors of pieces that are added together are in one number of the lanes");

// Up to four neighboring sums. Rows of them begin at any number, so that a question of how they are aligned would only
// be in the way.
METAL_FUNC float4 load_sums(device const float* from, uint count) {
  if (count >= 4) return float4(from[0], from[1], from[2], from[3]);
  float4 v = float4(0.0f);
  MLXTS_UNROLL for (uint i = 0; i < 3; ++i) if (i < count) v[i] = from[i];
  return v;
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
  for (uint column = 4 * index; column - 4 * lane < p.rank; column += 4 * size.x) {
    const uint count = left(column, p.rank);
    float4 value = float4(0.0f);
    for (uint piece = 0; piece < pieces; piece += kAtOnce) {
      float4 sums[kAtOnce];
      MLXTS_UNROLL for (uint i = 0; i < kAtOnce; ++i) sums[i] =
          load_sums(first + ulong(piece + i) * stride + MLA_PIECES_SOFTMAX_SIZE + column, piece + i < pieces ? count : 0);
      MLXTS_UNROLL for (uint i = 0; i < kAtOnce; ++i) {
        const float factor = simd_shuffle(piece < kSimd ? factors.x : factors.y, ushort((piece + i) % kSimd));
        value = fma(sums[i], float4(factor), value);
      }
    }
    value *= inverse;
    for (uint i = 0; i < min(count, 4u); ++i) vc[out * p.rank + column + i] = value[i];
  }
}
