// Long rows, first half: a threadgroup finds the largest element of a piece of a row.
#include "argmax_metal.h"
#include "argmax_pieces.params.h"

using namespace metal;
using namespace mlxts;

template <typename T>
kernel void argmax_pieces(device const T* logits [[buffer(ARGMAX_PIECES_LOGITS)]],
                          device uint* largest [[buffer(ARGMAX_PIECES_LARGEST)]],
                          constant ArgmaxPiecesParams& p [[buffer(ARGMAX_PIECES_PARAMS)]],
                          threadgroup uchar* memory [[threadgroup(0)]],
                          uint2 group [[threadgroup_position_in_grid]], uint2 groups [[threadgroups_per_grid]],
                          uint index [[thread_index_in_threadgroup]], uint2 threads [[threads_per_threadgroup]],
                          uint lane [[thread_index_in_simdgroup]], uint simdgroup [[simdgroup_index_in_threadgroup]],
                          uint simdgroups [[simdgroups_per_threadgroup]]) {
  const uint begin = group.x * ARGMAX_PIECES_PIECE, n = min(p.dim - begin, uint(ARGMAX_PIECES_PIECE));
  const Largest mine = largest_of_thread(logits + (ulong(group.y) * p.dim + begin), n, index, threads.x);
  const Largest best = largest_of_threadgroup(mine, scratch_of(memory, p).simdgroups, lane, simdgroup, simdgroups);
  if (index > 0) return;
  device uint* out = largest + 2 * (ulong(group.y) * groups.x + group.x);
  out[0] = best.key;
  out[1] = begin + best.at;
}

#define ARGMAX_PIECES(name, T) \
  template [[host_name("argmax_pieces_" name)]] [[kernel]] decltype(argmax_pieces<T>) argmax_pieces<T>;
ARGMAX_PIECES("f32", float)
ARGMAX_PIECES("f16", half)
ARGMAX_PIECES("bf16", bfloat)
