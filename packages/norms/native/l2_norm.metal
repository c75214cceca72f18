#include "l2_norm.params.h"
#include "metal_norm_row.h"

using namespace metal;
using namespace mlxts;

template <typename T>
kernel void l2_norm(device const T* x [[buffer(L2_NORM_X)]], device T* out [[buffer(L2_NORM_OUT)]],
                    constant L2NormParams& p [[buffer(L2_NORM_PARAMS)]], threadgroup uchar* memory [[threadgroup(0)]],
                    uint3 group [[threadgroup_position_in_grid]], uint3 position [[thread_position_in_threadgroup]],
                    uint3 size [[threads_per_threadgroup]], uint lane [[thread_index_in_simdgroup]],
                    uint simdgroup [[simdgroup_index_in_threadgroup]]) {
  const RowThread t = row_thread(group, position, size, lane, simdgroup);
  if (t.row >= p.rows) return;
  device const T* from = x + ulong(t.row) * p.dim;
  device T* to = out + ulong(t.row) * p.dim;
  const float norm = precise::sqrt(row_sum(squares(from, p.dim, t), scratch_of(memory, p).partial, t) + p.eps);
  // Not max: a NaN norm must stay NaN.
  const float inverse = 1.0f / (norm < p.floor ? p.floor : norm);
  for (uint i = first_element(t); i < p.dim; i = next_element(i, t)) {
    const uint n = elements_at(i, p.dim);
    store_some(to + i, load_some(from + i, n) * inverse, n);
  }
}

#define L2_NORM(name, T) template [[host_name("l2_norm_" name)]] [[kernel]] decltype(l2_norm<T>) l2_norm<T>;
L2_NORM("f32", float)
L2_NORM("f16", half)
L2_NORM("bf16", bfloat)
