// Root mean square norm of each row: one threadgroup a row, sum of squares in f32.
#include <metal_stdlib>
using namespace metal;

struct Params {
  uint dim;
  float eps;
};

template <typename T>
kernel void rms_norm(device const T* x [[buffer(0)]], device const T* weight [[buffer(1)]], device T* out [[buffer(2)]],
                     constant Params& p [[buffer(3)]], threadgroup float* partial [[threadgroup(0)]],
                     uint row [[threadgroup_position_in_grid]], uint i [[thread_position_in_threadgroup]],
                     uint threads [[threads_per_threadgroup]], uint lane [[thread_index_in_simdgroup]],
                     uint simdgroup [[simdgroup_index_in_threadgroup]],
                     uint simdgroups [[simdgroups_per_threadgroup]]) {
  device const vec<T, 4>* from = (device const vec<T, 4>*)(x + row * p.dim);
  device const vec<T, 4>* scale = (device const vec<T, 4>*)weight;
  device vec<T, 4>* to = (device vec<T, 4>*)(out + row * p.dim);
  float sum = 0.0f;
  for (uint k = i; k < p.dim / 4; k += threads) {
    const float4 v = float4(from[k]);
    sum += dot(v, v);
  }
  sum = simd_sum(sum);
  if (lane == 0) partial[simdgroup] = sum;
  threadgroup_barrier(mem_flags::mem_threadgroup);
  sum = simd_sum(lane < simdgroups ? partial[lane] : 0.0f);
  const float inverse = precise::rsqrt(sum / float(p.dim) + p.eps);
  for (uint k = i; k < p.dim / 4; k += threads) to[k] = vec<T, 4>(float4(from[k]) * inverse * float4(scale[k]));
}

#define INSTANTIATE(name, T) \
  template [[host_name("rms_norm_" name)]] [[kernel]] decltype(rms_norm<T>) rms_norm<T>;
INSTANTIATE("f32", float)
INSTANTIATE("f16", half)
INSTANTIATE("bf16", bfloat)
