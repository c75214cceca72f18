// How a threadgroup passes over the chunks of its head. In a CUDA translation cuda_chunk_state.h takes this header's
// place.
#pragma once
#include "state_tiles_metal.h"

namespace mlxts {

template <bool Channels, uint Keys, typename T>
METAL_FUNC void pass_over(StateHead<T> head, constant ChunkStateParams& p, ChunkStateScratch scratch, uint part,
                          uint index, uint lane, uint simdgroup) {
  pass_in_tiles<Channels, Keys>(head, p, scratch, part, index, lane, simdgroup);
}

}  // namespace mlxts
