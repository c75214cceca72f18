#include "fused_rows_metal.h"
#include "rms_norm_triple.params.h"

using namespace metal;
using namespace mlxts;

template <typename T>
kernel void rms_norm_triple(
    device const T* x [[buffer(RMS_NORM_TRIPLE_X)]], device const T* weightA [[buffer(RMS_NORM_TRIPLE_WEIGHT_A)]],
    device const T* weightB [[buffer(RMS_NORM_TRIPLE_WEIGHT_B)]],
    device const T* weightC [[buffer(RMS_NORM_TRIPLE_WEIGHT_C)]], device T* outA [[buffer(RMS_NORM_TRIPLE_OUT_A)]],
    device T* outB [[buffer(RMS_NORM_TRIPLE_OUT_B)]], device T* outC [[buffer(RMS_NORM_TRIPLE_OUT_C)]],
    constant RmsNormTripleParams& p [[buffer(RMS_NORM_TRIPLE_PARAMS)]], threadgroup uchar* memory [[threadgroup(0)]],
    uint3 group [[threadgroup_position_in_grid]], uint3 position [[thread_position_in_threadgroup]],
    uint3 size [[threads_per_threadgroup]], uint lane [[thread_index_in_simdgroup]],
    uint simdgroup [[simdgroup_index_in_threadgroup]]) {
  const RowThread t = row_thread(group, position, size, lane, simdgroup);
  if (t.row >= p.rows) return;
  const ulong start = ulong(t.row) * p.dim;
  const RowElements<T> row = {x + start};
  const RowNorm<T> norm = row_norm<T>(squares_of(row, p.dim, t), scratch_of(memory, p).partial, p, t);
  const ThreeOutputs<T> outputs = {
      {{weightA, bool(p.f32Weights & 1)}, {weightB, bool(p.f32Weights & 2)}, {weightC, bool(p.f32Weights & 4)}},
      {outA + start, outB + start, outC + start}};
  outputs.store(row, norm, p.dim, t);
}

#define RMS_NORM_TRIPLE(name, T) \
  template [[host_name("rms_norm_triple_" name)]] [[kernel]] decltype(rms_norm_triple<T>) rms_norm_triple<T>;
RMS_NORM_TRIPLE("f32", float)
RMS_NORM_TRIPLE("f16", half)
RMS_NORM_TRIPLE("bf16", bfloat)
