// Few queries, second half: a threadgroup has a query row. Its pieces are added in order, each multiplied by
// exp(its maximum − the largest maximum). A lane has the softmax of two pieces, then four columns of the sums.
#include "kv_cache.h"
#include "partial_vectors.h"
#include "query_rows.h"
#include "sdpa_merge.params.h"

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

template <typename X>
kernel void sdpa_merge(device const float* partial [[buffer(SDPA_MERGE_PARTIAL)]],
                       device const Index* lengths [[buffer(SDPA_MERGE_LENGTHS)]],
                       device X* out [[buffer(SDPA_MERGE_OUT)]],
                       constant SdpaMergeParams& p [[buffer(SDPA_MERGE_PARAMS)]],
                       uint group [[threadgroup_position_in_grid]], uint size [[threads_per_threadgroup]],
                       uint lane [[thread_index_in_simdgroup]], uint simdgroup [[simdgroup_index_in_threadgroup]]) {
  static_assert(SDPA_PIECES_MAX_PIECES == 2 * kSimd, "a lane has two pieces");
  const MergedRow row = merged_row(group, p);
  // A wrong length has been reported, and must not lead out of bounds; nor must one that has changed.
  const uint length = simd_broadcast_first(length_at({lengths, true}, row.sequence, 0, p.capacity));
  const uint pieces = pieces_of(length);
  const ulong stride = row.stride;
  device const float* first = partial + row.first;
  const float2 a = softmax_of(first, stride, lane, pieces), b = softmax_of(first, stride, lane + kSimd, pieces);
  const float maximum = simd_max(max(a.x, b.x));
  // Where nothing was visible, exp(−∞) = 0.
  const float2 factors = float2(precise::exp(a.x - maximum), precise::exp(b.x - maximum));
  const float denominator = simd_sum(a.y * factors.x + b.y * factors.y);
  const float inverse = pieces == 0 ? 0.0f : 1.0f / denominator;
  for (uint column = simdgroup * kSimd * 4; column < p.dim; column += size * 4) {
    const uint at = column + lane * 4, count = left(at, p.dim);
    float4 value = float4(0.0f);
    for (uint piece = 0; piece < pieces; piece += kAtOnce) {
      float4 sums[kAtOnce];
      MLXTS_UNROLL for (uint i = 0; i < kAtOnce; ++i) sums[i] =
          load_sums(first + ulong(piece + i) * stride + SDPA_PIECES_SOFTMAX_SIZE + at, piece + i < pieces ? count : 0);
      MLXTS_UNROLL for (uint i = 0; i < kAtOnce; ++i) {
        const float factor = simd_shuffle(piece < kSimd ? factors.x : factors.y, ushort((piece + i) % kSimd));
        value = fma(sums[i], float4(factor), value);
      }
    }
    store_some(out + ulong(group) * p.dim + at, value * inverse, count);
  }
}

template [[host_name("sdpa_merge_f32")]] [[kernel]] decltype(sdpa_merge<float>) sdpa_merge<float>;
template [[host_name("sdpa_merge_f16")]] [[kernel]] decltype(sdpa_merge<half>) sdpa_merge<half>;
template [[host_name("sdpa_merge_bf16")]] [[kernel]] decltype(sdpa_merge<bfloat>) sdpa_merge<bfloat>;
