#include "cache_rows.h"
#include "metal_convert.h"
#include "mla_cache_append.params.h"

using namespace metal;
using namespace mlxts;

// A threadgroup copies one token. Each simdgroup checks all starts before it writes anything, so that a dispatch that
// fails has written nothing.
template <typename X, typename C>
kernel void mla_cache_append(device const X* latent [[buffer(MLA_CACHE_APPEND_LATENT)]],
                             device const X* k_pe [[buffer(MLA_CACHE_APPEND_K_PE)]],
                             device const Index* start [[buffer(MLA_CACHE_APPEND_START)]],
                             device C* latents [[buffer(MLA_CACHE_APPEND_LATENT_CACHE)]],
                             device C* keys [[buffer(MLA_CACHE_APPEND_K_PE_CACHE)]],
                             constant MlaCacheAppendParams& p [[buffer(MLA_CACHE_APPEND_PARAMS)]],
                             device MlxtsFault* fault [[buffer(MLA_CACHE_APPEND_FAULT)]],
                             uint2 group [[threadgroup_position_in_grid]],
                             uint2 position [[thread_position_in_threadgroup]],
                             uint2 size [[threads_per_threadgroup]], uint lane [[thread_index_in_simdgroup]]) {
  const uint last = p.capacity - p.tokens, sequence = group.y;
  const Indices starts = {start, true};
  const FaultSearch search = {fault, lane};
  if (!starts_right(starts, p.counted, p.batch, last, search, MLA_CACHE_APPEND_FAULT_START)) return;
  const ulong token = ulong(sequence) * p.tokens + group.x;
  const ulong row = ulong(sequence) * p.sequenceStride + start_at(starts, p.counted, sequence, last) + group.x;
  for (uint i = 4 * position.x; i < p.latentDim; i += 4 * size.x)
    convert_four(latent + token * p.latentDim, latents + row * p.latentStride, i, p.latentDim);
  for (uint i = 4 * position.x; i < p.rope; i += 4 * size.x)
    convert_four(k_pe + token * p.rope, keys + row * p.ropeStride, i, p.rope);
}

#define MLA_CACHE_APPEND(name, X, C) \
  template [[host_name("mla_cache_append_" name)]] [[kernel]] decltype(mla_cache_append<X, C>) mla_cache_append<X, C>;
MLA_CACHE_APPEND("f32_f32", float, float)
MLA_CACHE_APPEND("f32_f16", float, half)
MLA_CACHE_APPEND("f32_bf16", float, bfloat)
MLA_CACHE_APPEND("f16_f32", half, float)
MLA_CACHE_APPEND("f16_f16", half, half)
MLA_CACHE_APPEND("f16_bf16", half, bfloat)
MLA_CACHE_APPEND("bf16_f32", bfloat, float)
MLA_CACHE_APPEND("bf16_f16", bfloat, half)
MLA_CACHE_APPEND("bf16_bf16", bfloat, bfloat)
