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

// Of the pieces of a row.
struct PieceSums {
  device const float* first;
  ulong stride;
  uint pieces, dim;

  // Four neighboring sums of each of some pieces from `piece` on, zeros where there are none. Where rows of them begin
  // at any number, a question of how they are aligned would only be in the way.
  METAL_FUNC void load(thread float4 (&sums)[kAtOnce], uint piece, uint column) const {
    const uint count = left(column, dim);
    const bool aligned = SDPA_PIECES_SOFTMAX_SIZE % 4 == 0 && dim % 4 == 0;
    device const float* from = first + piece * stride + SDPA_PIECES_SOFTMAX_SIZE + column;
    if (aligned) {
      MLXTS_UNROLL for (uint i = 0; i < kAtOnce; ++i, from += stride) sums[i] =
          piece + i < pieces && count > 0 ? load4_at_once(from) : float4(0.0f);
      return;
    }
    MLXTS_UNROLL for (uint i = 0; i < kAtOnce; ++i, from += stride)
        MLXTS_UNROLL for (uint e = 0; e < 4; ++e) sums[i][e] = piece + i < pieces && e < count ? from[e] : 0.0f;
  }
};

template <typename X>
kernel void sdpa_merge(device const float* partial [[buffer(SDPA_MERGE_PARTIAL)]],
                       device const Index* lengths [[buffer(SDPA_MERGE_LENGTHS)]],
                       device X* out [[buffer(SDPA_MERGE_OUT)]],
                       constant SdpaMergeParams& p [[buffer(SDPA_MERGE_PARAMS)]],
                       uint3 group [[threadgroup_position_in_grid]], uint3 size [[threads_per_threadgroup]],
                       uint lane [[thread_index_in_simdgroup]], uint simdgroup [[simdgroup_index_in_threadgroup]]) {
  static_assert(SDPA_PIECES_MAX_PIECES == 2 * kSimd, "a lane has two pieces");
  const MergedRow merged = merged_row(group.z, group.y, group.x, p);
  // A wrong length has been reported, and must not lead out of bounds; nor must one that has changed.
  const uint length = simd_broadcast_first(length_at({lengths, true}, merged.sequence, 0, p.capacity));
  const uint pieces = pieces_of(length);
  const ulong stride = merged.stride;
  device const float* first = partial + merged.first;
  const PieceSums rows = {first, stride, pieces, p.dim};
  wait_for_kernels(pieces ^ uint(stride) ^ uint(merged.first));
  const float2 a = softmax_of(first, stride, lane, pieces), b = softmax_of(first, stride, lane + kSimd, pieces);
  // What is added next is on its way meanwhile.
  float4 next[kAtOnce];
  rows.load(next, 0, simdgroup * kSimd * 4 + lane * 4);
  const float maximum = simd_max(max(a.x, b.x));
  // Where nothing was visible, exp(−∞) = 0.
  const float2 factors = float2(precise::exp(a.x - maximum), precise::exp(b.x - maximum));
  const float denominator = simd_sum(a.y * factors.x + b.y * factors.y);
  const float inverse = pieces == 0 ? 0.0f : 1.0f / denominator;
  for (uint column = simdgroup * kSimd * 4; column < p.dim; column += size.x * 4) {
    const uint at = column + lane * 4;
    float4 value = float4(0.0f);
    for (uint piece = 0; piece < pieces; piece += kAtOnce) {
      float4 sums[kAtOnce];
      MLXTS_UNROLL for (uint i = 0; i < kAtOnce; ++i) sums[i] = next[i];
      const bool more = piece + kAtOnce < pieces;
      rows.load(next, more ? piece + kAtOnce : 0, more ? at : at + size.x * 4);
      MLXTS_UNROLL for (uint i = 0; i < kAtOnce; ++i) {
        const float factor = simd_shuffle(piece < kSimd ? factors.x : factors.y, ushort((piece + i) % kSimd));
        value = fma(sums[i], float4(factor), value);
      }
    }
    const ulong row = (ulong(group.z) * p.tokens + group.y) * p.heads + group.x;
    store_some(out + row * p.dim + at, value * inverse, left(at, p.dim));
  }
}

template [[host_name("sdpa_merge_f32")]] [[kernel]] decltype(sdpa_merge<float>) sdpa_merge<float>;
template [[host_name("sdpa_merge_f16")]] [[kernel]] decltype(sdpa_merge<half>) sdpa_merge<half>;
template [[host_name("sdpa_merge_bf16")]] [[kernel]] decltype(sdpa_merge<bfloat>) sdpa_merge<bfloat>;
