// Many queries.
#include "metal_sdpa.h"
#ifdef MLXTS_CUDA
#include "warpgroup_sdpa_cuda.h"
#endif

using namespace metal;
using namespace mlxts;

// A threadgroup's queries, the first of its columns, and where its keys begin in the cache.
struct OwnQueries {
  AttentionTile tile;
  uint column;
  ulong cache;
};
// False where a length is wrong. Last rows first: when causal they see most and take longest.
METAL_FUNC bool find_queries(thread OwnQueries& found, device const Index* lengths, constant SdpaParams& p,
                             device MlxtsFault* fault, SdpaScratch scratch, uint3 group, uint3 groups, uint index,
                             uint lane) {
  const FaultSearch search = {fault, lane};
  const LengthFaults codes = {SDPA_FAULT_LENGTH, SDPA_FAULT_NEW_ROWS};
  const CheckedLength checked = checked_length(lengths, group.z, p, search, scratch.length, index);
  if (!waited_for_kernels(checked, checked.length, p, search, codes, index)) return false;
  const uint2 own = place_of(group, groups);
  const uint place = groups.x - 1 - own.x, parts = (p.dim + kColumns - 1) / kColumns;
  found.column = place % parts * kColumns;
  found.tile = attention_tile(query_rows(p, group.z, own.y, checked.length), place / parts * SDPA_TILE_ROWS,
                              SDPA_TILE_ROWS, 0, checked.length, max(p.scale, FLT_MIN));  // 0 · −∞ is no score
  found.cache = cache_row(group.z, own.y, p.kvHeads, p.capacity, 0) * p.dim;
  return true;
}

template <typename X, typename C>
kernel void sdpa(device const X* q [[buffer(SDPA_Q)]], device const C* k_cache [[buffer(SDPA_K_CACHE)]],
                 device const C* v_cache [[buffer(SDPA_V_CACHE)]], device const Index* lengths [[buffer(SDPA_LENGTHS)]],
                 device X* out [[buffer(SDPA_OUT)]], constant SdpaParams& p [[buffer(SDPA_PARAMS)]],
                 device MlxtsFault* fault [[buffer(SDPA_FAULT)]], threadgroup uchar* memory [[threadgroup(0)]],
                 uint3 group [[threadgroup_position_in_grid]], uint3 groups [[threadgroups_per_grid]],
                 uint index [[thread_index_in_threadgroup]], uint lane [[thread_index_in_simdgroup]],
                 uint simdgroup [[simdgroup_index_in_threadgroup]]) {
  const SdpaScratch scratch = scratch_of(memory, p);
  OwnQueries own;
  if (!find_queries(own, lengths, p, fault, scratch, group, groups, index, lane)) return;
  attention(q, k_cache + own.cache, v_cache + own.cache, out, own.tile, own.column, scratch, index, lane, simdgroup);
}

#ifdef MLXTS_CUDA
// The same where warpgroups multiply, see warpgroup_sdpa_cuda.h.
[[max_total_threads_per_threadgroup(384)]] kernel void sdpa_bf16_bf16_warpgroups(
    device const bfloat* q [[buffer(SDPA_Q)]], device const bfloat* k_cache [[buffer(SDPA_K_CACHE)]],
    device const bfloat* v_cache [[buffer(SDPA_V_CACHE)]], device const Index* lengths [[buffer(SDPA_LENGTHS)]],
    device bfloat* out [[buffer(SDPA_OUT)]], constant SdpaParams& p [[buffer(SDPA_PARAMS)]],
    device MlxtsFault* fault [[buffer(SDPA_FAULT)]], threadgroup uchar* memory [[threadgroup(0)]],
    uint3 group [[threadgroup_position_in_grid]], uint3 groups [[threadgroups_per_grid]],
    uint index [[thread_index_in_threadgroup]], uint lane [[thread_index_in_simdgroup]],
    uint simdgroup [[simdgroup_index_in_threadgroup]]) {
  const SdpaScratch scratch = scratch_of(memory, p);
  OwnQueries own;
  if (!find_queries(own, lengths, p, fault, scratch, group, groups, index, lane)) return;
  attend_by_warpgroups(q, k_cache + own.cache, v_cache + own.cache, out, own.tile, scratch, index, lane, simdgroup);
}
#endif

#define SDPA(x, X, c, C) template [[host_name("sdpa_" x "_" c)]] [[kernel]] decltype(sdpa<X, C>) sdpa<X, C>;
#define SDPA_CACHES(x, X) SDPA(x, X, "f32", float) SDPA(x, X, "f16", half) SDPA(x, X, "bf16", bfloat)
SDPA_CACHES("f32", float)
SDPA_CACHES("f16", half)
SDPA_CACHES("bf16", bfloat)
