// Few queries, second half: a threadgroup has a query row. Its pieces are added in order, each multiplied by
// exp(its maximum − the largest maximum). A lane has the softmax of two pieces, then four columns of the sums. Threads
// lie in rows of the threadgroup, each with the same columns of neighboring pieces; the first row adds up all of them.
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

// A GPU of NVIDIA then gives each thread registers for all that is on its way.
template <typename X>
[[max_total_threads_per_threadgroup(512)]] kernel void sdpa_merge(
    device const float* partial [[buffer(SDPA_MERGE_PARTIAL)]],
    device const Index* lengths [[buffer(SDPA_MERGE_LENGTHS)]], device X* out [[buffer(SDPA_MERGE_OUT)]],
    constant SdpaMergeParams& p [[buffer(SDPA_MERGE_PARAMS)]], threadgroup uchar* memory [[threadgroup(0)]],
    uint3 group [[threadgroup_position_in_grid]], uint3 position [[thread_position_in_threadgroup]],
    uint3 size [[threads_per_threadgroup]], uint lane [[thread_index_in_simdgroup]]) {
  static_assert(SDPA_PIECES_MAX_PIECES == 2 * kSimd, "a lane has two pieces");
  const MergedRow merged = merged_row(group.z, group.y, group.x, p);
  // A wrong length has been reported, and must not lead out of bounds; nor must one that has changed.
  const uint length = simd_broadcast_first(length_at({lengths, true}, merged.sequence, 0, p.capacity));
  const uint pieces = pieces_of(length, p.mostPieces);
  const ulong stride = merged.stride;
  device const float* first = partial + merged.first;
  const uint share = (pieces + kAtOnce * size.y - 1) / (kAtOnce * size.y) * kAtOnce;
  const uint begin = min(position.y * share, pieces), end = min(begin + share, pieces);
  const PieceSums rows = {first, stride, end, p.dim};
  threadgroup float4* others = (threadgroup float4*)scratch_of(memory, p).sums + position.x;
  wait_for_kernels(pieces ^ uint(stride) ^ uint(merged.first));
  const float2 a = softmax_of(first, stride, lane, pieces), b = softmax_of(first, stride, lane + kSimd, pieces);
  // What is added next is on its way meanwhile.
  float4 next[kAtOnce];
  rows.load(next, begin, position.x * 4);
  const float maximum = simd_max(max(a.x, b.x));
  // Where nothing was visible, exp(−∞) = 0.
  const float2 factors = float2(precise::exp(a.x - maximum), precise::exp(b.x - maximum));
  const float denominator = simd_sum(a.y * factors.x + b.y * factors.y);
  const float inverse = pieces == 0 ? 0.0f : 1.0f / denominator;
  for (uint column = 0; column < p.dim; column += size.x * 4) {
    const uint at = column + position.x * 4;
    float4 value = float4(0.0f);
    for (uint piece = begin; piece < end; piece += kAtOnce) {
      float4 sums[kAtOnce];
      MLXTS_UNROLL for (uint i = 0; i < kAtOnce; ++i) sums[i] = next[i];
      const bool more = piece + kAtOnce < end;
      rows.load(next, more ? piece + kAtOnce : begin, more ? at : at + size.x * 4);
      MLXTS_UNROLL for (uint i = 0; i < kAtOnce; ++i) {
        const float factor = simd_shuffle(piece < kSimd ? factors.x : factors.y, ushort((piece + i) % kSimd));
        value = fma(sums[i], float4(factor), value);
      }
    }
    if (size.y > 1) {
      if (position.y > 0) others[(position.y - 1) * size.x] = value;
      threadgroup_barrier(mem_flags::mem_threadgroup);
      if (position.y == 0)
        for (uint i = 0; i + 1 < size.y; ++i) value += others[i * size.x];
      // More columns take the same place.
      if (column + size.x * 4 < p.dim) threadgroup_barrier(mem_flags::mem_threadgroup);
    }
    if (position.y > 0) continue;
    const ulong row = (ulong(group.z) * p.tokens + group.y) * p.heads + group.x;
    store_some(out + row * p.dim + at, value * inverse, left(at, p.dim));
  }
}

template [[host_name("sdpa_merge_f32")]] [[kernel]] decltype(sdpa_merge<float>) sdpa_merge<float>;
template [[host_name("sdpa_merge_f16")]] [[kernel]] decltype(sdpa_merge<half>) sdpa_merge<half>;
template [[host_name("sdpa_merge_bf16")]] [[kernel]] decltype(sdpa_merge<bfloat>) sdpa_merge<bfloat>;
