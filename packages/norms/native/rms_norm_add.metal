#include "rms_norm_add.params.h"
#include "metal_norm_row.h"

using namespace metal;
using namespace mlxts;

template <typename T, typename W>
kernel void rms_norm_add(device const T* x [[buffer(RMS_NORM_ADD_X)]],
                         device const W* weight [[buffer(RMS_NORM_ADD_WEIGHT)]],
                         device const T* residual [[buffer(RMS_NORM_ADD_RESIDUAL)]],
                         device T* out [[buffer(RMS_NORM_ADD_OUT)]],
                         constant RmsNormAddParams& p [[buffer(RMS_NORM_ADD_PARAMS)]],
                         threadgroup uchar* memory [[threadgroup(0)]], uint3 group [[threadgroup_position_in_grid]],
                         uint3 position [[thread_position_in_threadgroup]], uint3 size [[threads_per_threadgroup]],
                         uint lane [[thread_index_in_simdgroup]], uint simdgroup [[simdgroup_index_in_threadgroup]]) {
  const RowThread t = row_thread(group, position, size, lane, simdgroup);
  if (t.row >= p.rows) return;
  const ulong start = ulong(t.row) * p.dim;
  x += start, residual += start, out += start;
  const RowNorm<T> norm = row_norm<T>(squares(x, p.dim, t), scratch_of(memory, p).partial, p, t);
  for (uint i = first_element(t); i < p.dim; i = next_element(i, t)) {
    const uint n = elements_at(i, p.dim);
    const float4 normed = round4<T>(norm(load_some(x + i, n), load_some(weight + i, n)));
    store_some(out + i, load_some(residual + i, n) + normed, n);
  }
}

#define RMS_NORM_ADD(name, T, W) \
  template [[host_name("rms_norm_add_" name)]] [[kernel]] decltype(rms_norm_add<T, W>) rms_norm_add<T, W>;
RMS_NORM_ADD("f32_f32", float, float)
RMS_NORM_ADD("f16_f16", half, half)
RMS_NORM_ADD("bf16_bf16", bfloat, bfloat)
RMS_NORM_ADD("f16_f32", half, float)
RMS_NORM_ADD("bf16_f32", bfloat, float)
