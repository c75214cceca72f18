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
  if (t.row >= p.rows) return;
  device const T* from = x + ulong(t.row) * p.dim;
  device T* to = out + ulong(t.row) * p.dim;
  const RowNorm<T> norm = row_norm<T>(squares(from, p.dim, t), scratch_of(memory, p).partial, p, t);
  for (uint i = first_element(t); i < p.dim; i += kAhead * 4 * t.threads) {
    float4 v[kAhead], w[kAhead];
    load_ahead(RowElements<T>{from}, i, p.dim, t, v);
    load_ahead(RowElements<W>{weight}, i, p.dim, t, w);
    MLXTS_UNROLL for (uint u = 0, at = i; u < kAhead; ++u, at = next_element(at, t))
      if (at < p.dim) store_some(to + at, norm(v[u], w[u]), elements_at(at, p.dim));
  }
}

#define RMS_NORM(name, T, W) \
  template [[host_name("rms_norm_" name)]] [[kernel]] decltype(rms_norm<T, W>) rms_norm<T, W>;
RMS_NORM("f32_f32", float, float)
RMS_NORM("f16_f16", half, half)
RMS_NORM("bf16_bf16", bfloat, bfloat)
RMS_NORM("f16_f32", half, float)
RMS_NORM("bf16_f32", bfloat, float)
