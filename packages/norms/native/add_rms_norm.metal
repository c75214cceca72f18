#include "add_rms_norm.params.h"
#include "metal_norm_row.h"

using namespace metal;
using namespace mlxts;

// The sums of a row, which are stored on the way.
template <typename T>
struct StoredSums {
  device const T *a, *b;
  device T* sum;
  METAL_FUNC float4 operator()(uint i, uint count) const {
    const float4 v = round4<T>(load_some(a + i, count) + load_some(b + i, count));
    store_some(sum + i, v, count);
    return v;
  }
};

template <typename T, typename W>
kernel void add_rms_norm(device const T* a [[buffer(ADD_RMS_NORM_A)]], device const T* b [[buffer(ADD_RMS_NORM_B)]],
                         device const W* weight [[buffer(ADD_RMS_NORM_WEIGHT)]],
                         device T* sum [[buffer(ADD_RMS_NORM_SUM)]], device T* out [[buffer(ADD_RMS_NORM_OUT)]],
                         constant AddRmsNormParams& p [[buffer(ADD_RMS_NORM_PARAMS)]],
                         threadgroup uchar* memory [[threadgroup(0)]], uint3 group [[threadgroup_position_in_grid]],
                         uint3 position [[thread_position_in_threadgroup]], uint3 size [[threads_per_threadgroup]],
                         uint lane [[thread_index_in_simdgroup]], uint simdgroup [[simdgroup_index_in_threadgroup]]) {
  const RowThread t = row_thread(group, position, size, lane, simdgroup);
  if (t.row >= p.rows) return;
  const ulong start = ulong(t.row) * p.dim;
  a += start, b += start, sum += start, out += start;
  const float share = squares_of(StoredSums<T>{a, b, sum}, p.dim, t);
  const RowNorm<T> norm = row_norm<T>(share, scratch_of(memory, p).partial, p, t);
  for (uint i = first_element(t); i < p.dim; i = next_element(i, t)) {
    const uint n = elements_at(i, p.dim);
    store_some(out + i, norm(load_some(sum + i, n), load_some(weight + i, n)), n);
  }
}

#define ADD_RMS_NORM(name, T, W) \
  template [[host_name("add_rms_norm_" name)]] [[kernel]] decltype(add_rms_norm<T, W>) add_rms_norm<T, W>;
ADD_RMS_NORM("f32_f32", float, float)
ADD_RMS_NORM("f16_f16", half, half)
ADD_RMS_NORM("bf16_bf16", bfloat, bfloat)
ADD_RMS_NORM("f16_f32", half, float)
ADD_RMS_NORM("bf16_f32", bfloat, float)
