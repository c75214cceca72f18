// Attention of many queries. In a CUDA translation cuda_sdpa.h takes this header's place.
#pragma once
#include "query_tiles_metal.h"

namespace mlxts {

template <typename X, typename C>
METAL_FUNC void attention(device const X* q, device const C* keys, device const C* values, device X* out,
                          thread const AttentionTile& tile, uint column, SdpaScratch scratch, uint index, uint lane,
                          uint simdgroup) {
  attend_tile(q, keys, values, out, tile, column, scratch, index, lane, simdgroup);
}

// Which of the threadgroups of a head comes when, and of which head.
METAL_FUNC uint2 place_of(uint3 group, uint3) { return uint2(group.x, group.y); }

}  // namespace mlxts
