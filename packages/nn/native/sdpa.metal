// Many queries: a threadgroup has some of the query rows that share a key/value head, and all keys that they see.
#include "sdpa_tile.h"

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
  const uint kv_head = group.y, sequence = group.z;
  const CheckedLength checked = checked_length(lengths, sequence, p, FaultSearch{fault, lane},
                                               {SDPA_FAULT_LENGTH, SDPA_FAULT_NEW_ROWS}, scratch.length, index);
  if (!checked.right) return;
  // Last rows first: when causal they see most and take longest.
  const uint first = (groups.x - 1 - group.x) * SDPA_TILE_ROWS;
  const AttentionTile tile =
      attention_tile(query_rows(p, sequence, kv_head, checked.length), first, 0, checked.length, p.scale);
  const ulong cache = cache_row(sequence, kv_head, p.kvHeads, p.capacity, 0) * p.dim;
  AttentionState state;
  uint next = 0;
  for (uint column = 0; column < p.dim; column += SDPA_TILE_COLUMNS) {
    attend(q, k_cache + cache, v_cache + cache, tile, column, scratch, next, state, lane, simdgroup);
    MLXTS_UNROLL for (int i = 0; i < kRowFragments; ++i) {
      const uint row = i * 8 + matrix_row(lane);
      if (row >= tile.rows) continue;
      const float inverse = tile.end == 0 ? 0.0f : 1.0f / scratch.denominators[row];
      MLXTS_UNROLL for (int s = 0; s < kStrips; ++s) {
        const uint at = strip_column(p.dim, column, s, lane, simdgroup);
        if (s < int(strips(p.dim, column)))
          store_some(out + tile.address(row) + at, strip_sums(state, i, s) * inverse, left(at, p.dim));
      }
    }
  }
}

#define SDPA(name, X, C) template [[host_name("sdpa_" name)]] [[kernel]] decltype(sdpa<X, C>) sdpa<X, C>;
SDPA("f32_f32", float, float)
SDPA("f32_f16", float, half)
SDPA("f32_bf16", float, bfloat)
SDPA("f16_f32", half, float)
SDPA("f16_f16", half, half)
SDPA("f16_bf16", half, bfloat)
SDPA("bf16_f32", bfloat, float)
SDPA("bf16_f16", bfloat, half)
SDPA("bf16_bf16", bfloat, bfloat)
