#include "gated_rms_norm.params.h"
#include "metal_norm_row.h"

using namespace metal;
using namespace mlxts;

// x · silu(z), or x · σ(z).
METAL_FUNC float4 gated(float4 x, float4 z, uint sigmoid) { return times_sigmoid(x, sigmoid ? float4(1.0f) : z, z); }

// What is stored for x, gate and weight.
template <typename T, typename W>
METAL_FUNC float4 scaled(float4 x, float4 z, float4 weight, float inverse, constant GatedRmsNormParams& p) {
  float4 normed = (p.gateFirst ? gated(x, z, p.sigmoidGate) : x) * inverse;
  if (p.roundBeforeWeight) normed = round4<T>(normed);
  float4 product = normed * (weight + p.weightOffset);
  if (p.gateFirst) return product;
  if (p.roundBeforeWeight && is_same_v<T, W>) product = round4<T>(product);
  return gated(product, z, p.sigmoidGate);
}

// What is squared where the gate comes first.
template <typename T>
struct GatedElements {
  device const T *x, *z;
  uint sigmoid;
  METAL_FUNC float4 operator()(uint i, uint count) const {
    return gated(load_some(x + i, count), load_some(z + i, count), sigmoid);
  }
};

// A row of which a thread has `Count` vectors at most. All that is read is asked for at once, weights before the wait.
template <uint Count, typename T, typename W>
METAL_FUNC void store_held(device const T* x, device const T* z, device const W* weight, device T* out,
                           threadgroup float* partial, constant GatedRmsNormParams& p, RowThread t) {
  PackedFour<T> v[Count], gate[Count];
  PackedFour<W> w[Count];
  load_held(weight, p.dim, t, w);
  wait_for_kernels();
  load_held(x, p.dim, t, v);
  load_held(z, p.dim, t, gate);
  float share = 0.0f;
  MLXTS_UNROLL for (uint u = 0; u < Count; ++u) {
    const float4 squared = p.gateFirst ? gated(v[u].wide(), gate[u].wide(), p.sigmoidGate) : v[u].wide();
    share += dot(squared, squared);
  }
  const float inverse = inverse_rms(share, partial, p, t);
  MLXTS_UNROLL for (uint u = 0; u < Count; ++u)
    v[u] = PackedFour<T>::rounded(scaled<T, W>(v[u].wide(), gate[u].wide(), w[u].wide(), inverse, p));
  store_held(out, p.dim, t, v);
}

template <typename T, typename W>
kernel void gated_rms_norm(device const T* x [[buffer(GATED_RMS_NORM_X)]],
                           device const T* z [[buffer(GATED_RMS_NORM_Z)]],
                           device const W* weight [[buffer(GATED_RMS_NORM_WEIGHT)]],
                           device T* out [[buffer(GATED_RMS_NORM_OUT)]],
                           constant GatedRmsNormParams& p [[buffer(GATED_RMS_NORM_PARAMS)]],
                           threadgroup uchar* memory [[threadgroup(0)]], uint3 group [[threadgroup_position_in_grid]],
                           uint3 position [[thread_position_in_threadgroup]], uint3 size [[threads_per_threadgroup]],
                           uint lane [[thread_index_in_simdgroup]], uint simdgroup [[simdgroup_index_in_threadgroup]]) {
  const RowThread t = row_thread(group, position, size, lane, simdgroup);
  if (t.row >= p.rows) return wait_for_kernels();
  const ulong start = ulong(t.row) * p.dim;
  device const T* from = x + start;
  device const T* gate = z + start;
  device T* to = out + start;
  if (is_held(p.dim, t) && aligned_to_four(from) && aligned_to_four(gate) && aligned_to_four(weight) &&
      aligned_to_four(to)) {
    threadgroup float* partial = scratch_of(memory, p).partial;
    if (p.dim <= 4 * t.threads) return store_held<1>(from, gate, weight, to, partial, p, t);
    return store_held<kHeld>(from, gate, weight, to, partial, p, t);
  }
  wait_for_kernels();
  const float share =
      p.gateFirst ? squares_of(GatedElements<T>{from, gate, p.sigmoidGate}, p.dim, t) : squares(from, p.dim, t);
  const float inverse = inverse_rms(share, scratch_of(memory, p).partial, p, t);
  for (uint i = first_element(t); i < p.dim; i = next_element(i, t)) {
    const uint n = elements_at(i, p.dim);
    store_some(to + i,
               scaled<T, W>(load_some(from + i, n), load_some(gate + i, n), load_some(weight + i, n), inverse, p), n);
  }
}

#define GATED_RMS_NORM(name, T, W) \
  template [[host_name("gated_rms_norm_" name)]] [[kernel]] decltype(gated_rms_norm<T, W>) gated_rms_norm<T, W>;
GATED_RMS_NORM("f32_f32", float, float)
GATED_RMS_NORM("f16_f16", half, half)
GATED_RMS_NORM("bf16_bf16", bfloat, bfloat)
GATED_RMS_NORM("f16_f32", half, float)
GATED_RMS_NORM("bf16_f32", bfloat, float)
