// Many queries.
#include "metal_sdpa.h"

using namespace metal;
using namespace mlxts;

template <typename X, typename C>
kernel void sdpa(device const X* q [[buffer(SDPA_Q)]], device const C* k_cache [[buffer(SDPA_K_CACHE)]],
                 device const C* v_cache [[buffer(SDPA_V_CACHE)]], device const Index* lengths [[buffer(SDPA_LENGTHS)]],
                 device X* out [[buffer(SDPA_OUT)]], constant SdpaParams& p [[buffer(SDPA_PARAMS)]],
                 device MlxtsFault* fault [[buffer(SDPA_FAULT)]], threadgroup uchar* memory [[threadgroup(0)]],
                 uint3 group [[threadgroup_position_in_grid]], uint3 groups [[threadgroups_per_grid]],
                 uint index [[thread_index_in_threadgroup]], uint lane [[thread_index_in_simdgroup]],
                 uint simdgroup [[simdgroup_index_in_threadgroup]]) {
  const SdpaScratch scratch = scratch_of(memory, p);
  const FaultSearch search = {fault, lane};
  const LengthFaults codes = {SDPA_FAULT_LENGTH, SDPA_FAULT_NEW_ROWS};
  const CheckedLength checked = checked_length(lengths, group.z, p, search, scratch.length, index);
  if (!waited_for_kernels(checked, checked.length, p, search, codes, index)) return;
  // Last rows first: when causal they see most and take longest.
  const uint2 own = place_of(group, groups);
  const uint place = groups.x - 1 - own.x, parts = (p.dim + kColumns - 1) / kColumns;
  const uint first = place / parts * SDPA_TILE_ROWS, column = place % parts * kColumns;
  const AttentionTile tile = attention_tile(query_rows(p, group.z, own.y, checked.length), first, SDPA_TILE_ROWS, 0,
                                            checked.length, max(p.scale, FLT_MIN));  // 0 · −∞ is no score
  const ulong cache = cache_row(group.z, own.y, p.kvHeads, p.capacity, 0) * p.dim;
  attention(q, k_cache + cache, v_cache + cache, out, tile, column, scratch, index, lane, simdgroup);
}

#define SDPA(x, X, c, C) template [[host_name("sdpa_" x "_" c)]] [[kernel]] decltype(sdpa<X, C>) sdpa<X, C>;
#define SDPA_CACHES(x, X) SDPA(x, X, "f32", float) SDPA(x, X, "f16", half) SDPA(x, X, "bf16", bfloat)
SDPA_CACHES("f32", float)
SDPA_CACHES("f16", half)
SDPA_CACHES("bf16", bfloat)
