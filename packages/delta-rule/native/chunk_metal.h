// What the Metal kernels of the chunk stages share: the chunk of a threadgroup and its cumulative gates.
#pragma once
#include "chunk_place.h"
#include "metal_kernel.h"

namespace mlxts {

// The chunk of a threadgroup, [slot, head, row of tokens]; no rows where cuSeqlens is wrong, which is reported.
// `agreed` has two words.
template <typename P>
METAL_FUNC ChunkPlace threadgroup_place(constant P& p, Indices cuSeqlens, metal::uint3 group, uint slots,
                                        FaultSearch search, uint code, threadgroup uint* agreed, uint index) {
  ChunkPlace place = chunk_place(p, cuSeqlens, group.x, slots, group.y, group.z);
  if (!cuSeqlens) return place;
  const bool right = packed_right(cuSeqlens, p.sequences, p.tokens, search, code);
  const metal::uint2 first = threadgroup_first(metal::uint2(uint(place.token), right ? place.rows : 0), agreed, index);
  place.token = first.x;
  place.rows = first.y;
  return place;
}

// G and GLow of a call from one element on, tokens `stride` apart.
struct CumulativeGateTensors {
  device const float* high;
  device const float* low;
  bool carriesLow;  // whether GLow is there
  uint stride;
};

METAL_FUNC CumulativeGateTensors gates_from(CumulativeGateTensors G, ulong element) {
  return {G.high + element, G.low + element, G.carriesLow, G.stride};
}

// G of one chunk and head, high + low, in threadgroup memory; zeros for rows that are not real.
struct CumulativeGates {
  threadgroup float* high;
  threadgroup float* low;
};

// exp(G_i − G_j), for i ≥ j.
METAL_FUNC float decay_between(CumulativeGates G, uint i, uint j) {
  return metal::precise::exp((G.high[i] - G.high[j]) + (G.low[i] - G.low[j]));
}

// exp(high + low) with |low| small: three terms of exp(low) are all that f32 sees.
METAL_FUNC float exp_of_sum(float high, float low) {
  return metal::precise::exp(high) * (1.0f + low * (1.0f + 0.5f * low));
}

// exp(G) of one row.
METAL_FUNC float decay_at(CumulativeGateTensors G, uint row) {
  return exp_of_sum(G.high[row * G.stride], G.carriesLow ? G.low[row * G.stride] : 0.0f);
}

// Four neighbors, aligned; by reference, since it is at references that the simulator asks for alignment.
template <typename T>
METAL_FUNC float4 load4_aligned(threadgroup const T* from) {
  threadgroup const metal::vec<T, 4>& four = *(threadgroup const metal::vec<T, 4>*)from;
  return float4(float(four.x), float(four.y), float(four.z), float(four.w));
}

template <typename T>
METAL_FUNC void store4_aligned(threadgroup T* to, float4 v) {
  threadgroup metal::vec<T, 4>& four = *(threadgroup metal::vec<T, 4>*)to;
  four = metal::vec<T, 4>(T(v.x), T(v.y), T(v.z), T(v.w));
}

}  // namespace mlxts
