#include "rms_norm_no_scale_dual.params.h"
#include "metal_norm_row.h"

using namespace metal;
using namespace mlxts;

template <typename T>
kernel void rms_norm_no_scale_dual(device const float* x [[buffer(RMS_NORM_NO_SCALE_DUAL_X)]],
                                   device float* out [[buffer(RMS_NORM_NO_SCALE_DUAL_OUT)]],
                                   device T* out16 [[buffer(RMS_NORM_NO_SCALE_DUAL_OUT16)]],
                                   constant RmsNormNoScaleDualParams& p [[buffer(RMS_NORM_NO_SCALE_DUAL_PARAMS)]],
                                   threadgroup uchar* memory [[threadgroup(0)]],
                                   uint3 group [[threadgroup_position_in_grid]],
                                   uint3 position [[thread_position_in_threadgroup]],
                                   uint3 size [[threads_per_threadgroup]], uint lane [[thread_index_in_simdgroup]],
                                   uint simdgroup [[simdgroup_index_in_threadgroup]]) {
  const RowThread t = row_thread(group, position, size, lane, simdgroup);
  if (t.row >= p.rows) return;
  const ulong start = ulong(t.row) * p.dim;
  const uint place = t.row % p.heads * (p.rows / p.heads) + t.row / p.heads;
  x += start, out += start, out16 += ulong(place) * p.dim;
  const float inverse = inverse_rms(squares(x, p.dim, t), scratch_of(memory, p).partial, p, t);
  for (uint i = first_element(t); i < p.dim; i = next_element(i, t)) {
    const uint n = elements_at(i, p.dim);
    const float4 normed = load_some(x + i, n) * inverse;
    store_some(out + i, normed, n);
    store_some(out16 + i, normed, n);
  }
}

#define RMS_NORM_NO_SCALE_DUAL(name, T) \
  template [[host_name(                 \
      "rms_norm_no_scale_dual_" name)]] [[kernel]] decltype(rms_norm_no_scale_dual<T>) rms_norm_no_scale_dual<T>;
RMS_NORM_NO_SCALE_DUAL("f32_f16", half)
RMS_NORM_NO_SCALE_DUAL("f32_bf16", bfloat)
