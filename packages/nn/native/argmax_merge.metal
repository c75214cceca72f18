// Long rows, second half: a simdgroup finds the largest element of a row among those of its pieces.
#include "argmax_merge.params.h"
#include "argmax_metal.h"

using namespace metal;
using namespace mlxts;

kernel void argmax_merge_u32(device const uint* largest [[buffer(ARGMAX_MERGE_LARGEST)]],
                             device uint* ids [[buffer(ARGMAX_MERGE_IDS)]],
                             constant ArgmaxMergeParams& p [[buffer(ARGMAX_MERGE_PARAMS)]],
                             uint row [[threadgroup_position_in_grid]], uint lane [[thread_index_in_simdgroup]]) {
  Largest best = {0, 0};
  for (uint piece = lane; piece < p.pieces; piece += kSimd) {
    device const uint* from = largest + 2 * (ulong(row) * p.pieces + piece);
    if (from[0] > best.key) best = {from[0], from[1]};
  }
  best = largest_of_simdgroup(best);
  if (lane == 0) ids[row] = best.at;
}
