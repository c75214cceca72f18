#include "rms_norm.params.h"
#include "metal_norm_row.h"

using namespace metal;
using namespace mlxts;

template <typename T, typename W>
kernel void rms_norm(device const T* x [[buffer(RMS_NORM_X)]], device const W* weight [[buffer(RMS_NORM_WEIGHT)]],
                     device T* out [[buffer(RMS_NORM_OUT)]], constant RmsNormParams& p [[buffer(RMS_NORM_PARAMS)]],
                     threadgroup uchar* memory [[threadgroup(0)]], uint3 group [[threadgroup_position_in_grid]],
                     uint3 position [[thread_position_in_threadgroup]], uint3 size [[threads_per_threadgroup]],
                     uint lane [[thread_index_in_simdgroup]], uint simdgroup [[simdgroup_index_in_threadgroup]]) {
  const RowThread t = row_thread(group, position, size, lane, simdgroup);
  if (t.row >= p.rows) return wait_for_kernels();
  const ulong start = ulong(t.row) * p.dim;
  store_norm(RowVectors<T>{x + start}, x + start, weight, out + start, scratch_of(memory, p).partial, p, t);
}

#define RMS_NORM(name, T, W) \
  template [[host_name("rms_norm_" name)]] [[kernel]] decltype(rms_norm<T, W>) rms_norm<T, W>;
RMS_NORM("f32_f32", float, float)
RMS_NORM("f16_f16", half, half)
RMS_NORM("bf16_bf16", bfloat, bfloat)
RMS_NORM("f16_f32", half, float)
RMS_NORM("bf16_f32", bfloat, float)
