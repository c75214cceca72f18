// Few queries, second half: one threadgroup is a query row. Its pieces are put together in order: a piece counts
// exp(its max − the overall max). Lanes have two pieces each at first, four columns each in the sum.
#include "sdpa_common.h"
#include "sdpa_merge.params.h"

using namespace metal;
using namespace mlxts;

METAL_FUNC float2 piece_of(device const float* first, ulong stride, uint piece, uint pieces) {
  return piece < pieces ? float2(first[piece * stride], first[piece * stride + 1]) : float2(-INFINITY, 0.0f);
}

template <typename X>
kernel void sdpa_merge(device const float* partial [[buffer(SDPA_MERGE_PARTIAL)]],
                       device const Index* lengths [[buffer(SDPA_MERGE_LENGTHS)]],
                       device X* out [[buffer(SDPA_MERGE_OUT)]],
                       constant SdpaMergeParams& p [[buffer(SDPA_MERGE_PARAMS)]],
                       uint group [[threadgroup_position_in_grid]], uint size [[threads_per_threadgroup]],
                       uint lane [[thread_index_in_simdgroup]], uint simdgroup [[simdgroup_index_in_threadgroup]]) {
  static_assert(SDPA_PIECES_MAX_PIECES == 2 * kSimd, "a lane has two pieces");
  const uint head = group % p.heads, token = group / p.heads % p.tokens, sequence = group / p.heads / p.tokens;
  const uint share = p.heads / p.kvHeads, rows = p.tokens * share;
  // A wrong length has been reported, and must not lead out of bounds; nor must one that has changed.
  const uint length = uint(max(simd_broadcast_first(read_index(lengths, sequence)), 0));
  const uint pieces = min(p.pieces, (length + piece_keys(length) - 1) / piece_keys(length));
  const ulong stride = ulong(rows) * (p.dim + 2);
  device const float* first = partial + (ulong(sequence) * p.kvHeads + head / share) * p.pieces * stride +
                              ulong(token * share + head % share) * (p.dim + 2);
  const float2 a = piece_of(first, stride, lane, pieces), b = piece_of(first, stride, lane + kSimd, pieces);
  const float top = simd_max(max(a.x, b.x));
  // Where nothing was visible, exp(−∞) = 0.
  const float2 factors = float2(precise::exp(a.x - top), precise::exp(b.x - top));
  const float sum = simd_sum(a.y * factors.x + b.y * factors.y);
  const float inverse = pieces == 0 ? 0.0f : 1.0f / sum;
  for (uint column = simdgroup * kSimd * 4; column < p.dim; column += size * 4) {
    const uint at = column + lane * 4, count = left(at, p.dim);
    float4 value = float4(0.0f);
    for (uint i = 0; i < pieces; ++i) {
      const float factor = simd_shuffle(i < kSimd ? factors.x : factors.y, ushort(i % kSimd));
      value = fma(load_some(first + i * stride + 2 + at, count), float4(factor), value);
    }
    store_some(out + ulong(group) * p.dim + at, value * inverse, count);
  }
}

template [[host_name("sdpa_merge_f32")]] [[kernel]] decltype(sdpa_merge<float>) sdpa_merge<float>;
template [[host_name("sdpa_merge_f16")]] [[kernel]] decltype(sdpa_merge<half>) sdpa_merge<half>;
template [[host_name("sdpa_merge_bf16")]] [[kernel]] decltype(sdpa_merge<bfloat>) sdpa_merge<bfloat>;
