#include "add_rms_norm.params.h"
#include "metal_norm_row.h"

using namespace metal;
using namespace mlxts;

// The sums of a row, which are stored on the way.
template <typename T>
struct StoredSums {
  device const T *a, *b;
  device T* sum;
  METAL_FUNC void operator()(uint i, uint dim, RowThread t, thread float4 (&v)[kAhead]) const {
    float4 added[kAhead];
    load_ahead(RowElements<T>{a}, i, dim, t, v);
    load_ahead(RowElements<T>{b}, i, dim, t, added);
    MLXTS_UNROLL for (uint u = 0, at = i; u < kAhead; ++u, at = next_element(at, t)) {
      v[u] = round4<T>(v[u] + added[u]);
      if (at < dim) store_some(sum + at, v[u], elements_at(at, dim));
    }
  }
  METAL_FUNC bool aligned() const { return aligned_to_four(a) && aligned_to_four(b) && aligned_to_four(sum); }
  template <uint Count>
  METAL_FUNC void held(uint dim, RowThread t, thread PackedFour<T> (&v)[Count]) const {
    PackedFour<T> added[Count];
    load_held(a, dim, t, v);
    load_held(b, dim, t, added);
    MLXTS_UNROLL for (uint u = 0; u < Count; ++u) v[u] = PackedFour<T>::rounded(v[u].wide() + added[u].wide());
    store_held(sum, dim, t, v);
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
  if (t.row >= p.rows) return wait_for_kernels();
  const ulong start = ulong(t.row) * p.dim;
  a += start, b += start, sum += start, out += start;
  store_norm(StoredSums<T>{a, b, sum}, sum, weight, out, scratch_of(memory, p).partial, p, t);
}

#define ADD_RMS_NORM(name, T, W) \
  template [[host_name("add_rms_norm_" name)]] [[kernel]] decltype(add_rms_norm<T, W>) add_rms_norm<T, W>;
ADD_RMS_NORM("f32_f32", float, float)
ADD_RMS_NORM("f16_f16", half, half)
ADD_RMS_NORM("bf16_bf16", bfloat, bfloat)
ADD_RMS_NORM("f16_f32", half, float)
ADD_RMS_NORM("bf16_f32", bfloat, float)
