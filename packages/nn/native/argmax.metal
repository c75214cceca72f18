#include "argmax.params.h"
#include "argmax_metal.h"

using namespace metal;
using namespace mlxts;

// One threadgroup: one row.
template <typename T>
kernel void argmax(device const T* logits [[buffer(ARGMAX_LOGITS)]], device uint* ids [[buffer(ARGMAX_IDS)]],
                   constant ArgmaxParams& p [[buffer(ARGMAX_PARAMS)]], threadgroup uchar* memory [[threadgroup(0)]],
                   uint row [[threadgroup_position_in_grid]], uint index [[thread_position_in_threadgroup]],
                   uint threads [[threads_per_threadgroup]], uint lane [[thread_index_in_simdgroup]],
                   uint simdgroup [[simdgroup_index_in_threadgroup]], uint simdgroups [[simdgroups_per_threadgroup]]) {
  const Largest mine = largest_of_thread(logits + ulong(row) * p.dim, p.dim, index, threads);
  const Largest best = largest_of_threadgroup(mine, scratch_of(memory, p).largest, lane, simdgroup, simdgroups);
  if (index == 0) ids[row] = best.at;
}

#define ARGMAX(name, T) template [[host_name("argmax_" name)]] [[kernel]] decltype(argmax<T>) argmax<T>;
ARGMAX("f32", float)
ARGMAX("f16", half)
ARGMAX("bf16", bfloat)
