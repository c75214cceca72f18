#include "gated_rms_norm.params.h"
#include "row.h"

using namespace metal;
using namespace mlxts;

// x · silu(z), or x · σ(z).
METAL_FUNC float4 gated(float4 x, float4 z, uint sigmoid) {
  return times_sigmoid(x, sigmoid ? float4(1.0f) : z, z);
}

// One element or four: what is stored for x, gate and weight.
template <typename T, typename W>
METAL_FUNC float4 scaled(float4 x, float4 z, float4 weight, float inverse, constant GatedRmsNormParams& p) {
  float4 normed = (p.gateFirst ? gated(x, z, p.sigmoidGate) : x) * inverse;
  if (p.roundBeforeWeight) normed = round4<T>(normed);
  float4 product = normed * (weight + p.weightOffset);
  if (p.gateFirst) return product;
  if (p.roundBeforeWeight && is_same_v<T, W>) product = round4<T>(product);
  return gated(product, z, p.sigmoidGate);
}

template <typename T>
METAL_FUNC float gated_squares(device const T* x, device const T* z, uint dim, uint sigmoid, RowThread t) {
  float sum = 0.0f;
  for (uint i = t.index * 4; i + 4 <= dim; i += t.threads * 4) {
    const float4 v = gated(load4(x + i), load4(z + i), sigmoid);
    sum += dot(v, v);
  }
  const uint rest = dim / 4 * 4 + t.index;
  if (rest >= dim) return sum;
  const float v = gated(float4(float(x[rest])), float4(float(z[rest])), sigmoid).x;
  return sum + v * v;
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
  if (t.row >= p.rows) return;
  const ulong start = ulong(t.row) * p.dim;
  device const T* from = x + start;
  device const T* gate = z + start;
  device T* to = out + start;
  const float share = p.gateFirst ? gated_squares(from, gate, p.dim, p.sigmoidGate, t) : squares(from, p.dim, t);
  const float inverse = 1.0f / precise::sqrt(row_sum(share, scratch_of(memory, p).partial, t) / float(p.dim) + p.eps);
  for (uint i = t.index * 4; i + 4 <= p.dim; i += t.threads * 4)
    store4(to + i, scaled<T, W>(load4(from + i), load4(gate + i), load4(weight + i), inverse, p));
  const uint rest = p.dim / 4 * 4 + t.index;
  if (rest >= p.dim) return;
  const float4 x1 = float4(float(from[rest])), z1 = float4(float(gate[rest])), w1 = float4(float(weight[rest]));
  to[rest] = T(scaled<T, W>(x1, z1, w1, inverse, p).x);
}

#define GATED_RMS_NORM(name, T, W) \
  template [[host_name("gated_rms_norm_" name)]] [[kernel]] decltype(gated_rms_norm<T, W>) gated_rms_norm<T, W>;
GATED_RMS_NORM("f32_f32", float, float)
GATED_RMS_NORM("f16_f16", half, half)
GATED_RMS_NORM("bf16_bf16", bfloat, bfloat)
GATED_RMS_NORM("f16_f32", half, float)
GATED_RMS_NORM("bf16_f32", bfloat, float)
