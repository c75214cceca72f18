#include "metal_kernel.h"
#include "token_positions.h"

using namespace metal;
using namespace mlxts;

// A threadgroup has some heads of a token; a thread rotates a pair of a head. Each simdgroup checks all positions before
// it writes anything, so that a dispatch that fails has written nothing.
template <typename T>
kernel void rope_yarn(device const T* x [[buffer(ROPE_YARN_X)]],
                      device const T* k [[buffer(ROPE_YARN_K)]],
                      device const Index* positions [[buffer(ROPE_YARN_POSITIONS)]],
                      device const float* table [[buffer(ROPE_YARN_TABLE)]], device T* out [[buffer(ROPE_YARN_OUT)]],
                      device T* outK [[buffer(ROPE_YARN_OUT_K)]],
                      constant RopeYarnParams& p [[buffer(ROPE_YARN_PARAMS)]],
                      device MlxtsFault* fault [[buffer(ROPE_YARN_FAULT)]],
                      uint2 group [[threadgroup_position_in_grid]], uint2 position [[thread_position_in_threadgroup]],
                      uint2 size [[threads_per_threadgroup]], uint lane [[thread_index_in_simdgroup]]) {
  const TokenPositions places = token_positions({positions, true}, p);
  if (!places.right(p.tokens, FaultSearch{fault, lane})) return;
  const uint token = group.x, head = group.y * size.y + position.y;
  if (head >= p.heads + p.kHeads) return;
  device const float* cosines = table + ulong(places.at(token)) * 2 * p.pairs;
  device const float* sines = cosines + p.pairs;
  // The heads of k come after those of x.
  const bool ofK = head >= p.heads;
  const ulong row = ofK ? ulong(token) * p.kHeads + head - p.heads : ulong(token) * p.heads + head;
  device const T* from = ofK ? k + row * p.kDim + p.kFirst : x + row * p.dim + p.first;  // [2 pairs]
  device T* to = (ofK ? outK : out) + row * 2 * p.pairs;                                 // [2 pairs]
  for (uint i = position.x; i < p.pairs; i += size.x) {
    const uint first = p.interleaved ? 2 * i : i, second = p.interleaved ? first + 1 : first + p.pairs;
    const float a = float(from[first]), b = float(from[second]);
    to[first] = T(a * cosines[i] - b * sines[i]);
    to[second] = T(a * sines[i] + b * cosines[i]);
  }
}

#define ROPE_YARN(name, T) \
  template [[host_name("rope_yarn_" name)]] [[kernel]] decltype(rope_yarn<T>) rope_yarn<T>;
ROPE_YARN("f32", float)
ROPE_YARN("f16", half)
ROPE_YARN("bf16", bfloat)
