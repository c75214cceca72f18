#include "rms_norm_no_scale.params.h"
#include "metal_norm_row.h"

using namespace metal;
using namespace mlxts;

template <typename T>
kernel void rms_norm_no_scale(device const T* x [[buffer(RMS_NORM_NO_SCALE_X)]],
                              device T* out [[buffer(RMS_NORM_NO_SCALE_OUT)]],
                              constant RmsNormNoScaleParams& p [[buffer(RMS_NORM_NO_SCALE_PARAMS)]],
                              threadgroup uchar* memory [[threadgroup(0)]],
                              uint3 group [[threadgroup_position_in_grid]],
                              uint3 position [[thread_position_in_threadgroup]], uint3 size [[threads_per_threadgroup]],
                              uint lane [[thread_index_in_simdgroup]],
                              uint simdgroup [[simdgroup_index_in_threadgroup]]) {
  const RowThread t = row_thread(group, position, size, lane, simdgroup);
  if (t.row >= p.rows) return;
  const ulong start = ulong(t.row) * p.dim;
  x += start, out += start;
  const float inverse = inverse_rms(squares(x, p.dim, t), scratch_of(memory, p).partial, p, t);
  for (uint i = first_element(t); i < p.dim; i = next_element(i, t)) {
    const uint n = elements_at(i, p.dim);
    store_some(out + i, load_some(x + i, n) * inverse, n);
  }
}

#define RMS_NORM_NO_SCALE(name, T) \
  template [[host_name("rms_norm_no_scale_" name)]] [[kernel]] decltype(rms_norm_no_scale<T>) rms_norm_no_scale<T>;
RMS_NORM_NO_SCALE("f32", float)
RMS_NORM_NO_SCALE("f16", half)
RMS_NORM_NO_SCALE("bf16", bfloat)
