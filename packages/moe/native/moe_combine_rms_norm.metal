#include "moe_combine_rms_norm.params.h"
#include "combined_row_metal.h"

using namespace metal;
using namespace mlxts;

// The sums of a row, which are stored on the way.
template <typename T>
struct StoredRow {
  CombinedRow<T> row;
  device T* sum;
  METAL_FUNC float4 operator()(uint i, uint count) const {
    const float4 v = round4<T>(row(i, count));
    store_some(sum + i, v, count);
    return v;
  }
};

// The threads of a row have one token. Where the order lacks one of its pairs, they go on with another row of y: all of
// them come to the sum over the threadgroup.
template <typename T, typename W>
kernel void moe_combine_rms_norm(
    device const T* y [[buffer(MOE_COMBINE_RMS_NORM_Y)]],
    device const float* weights [[buffer(MOE_COMBINE_RMS_NORM_WEIGHTS)]],
    device const Index* order [[buffer(MOE_COMBINE_RMS_NORM_ORDER)]],
    device const Index* places [[buffer(MOE_COMBINE_RMS_NORM_PLACES)]],
    device const T* shared [[buffer(MOE_COMBINE_RMS_NORM_SHARED)]],
    device const T* sharedGate [[buffer(MOE_COMBINE_RMS_NORM_SHARED_GATE)]],
    device const T* residual [[buffer(MOE_COMBINE_RMS_NORM_RESIDUAL)]],
    device const W* normWeight [[buffer(MOE_COMBINE_RMS_NORM_NORM_WEIGHT)]],
    device T* sum [[buffer(MOE_COMBINE_RMS_NORM_SUM)]], device T* out [[buffer(MOE_COMBINE_RMS_NORM_OUT)]],
    constant MoeCombineRmsNormParams& p [[buffer(MOE_COMBINE_RMS_NORM_PARAMS)]],
    device MlxtsFault* fault [[buffer(MOE_COMBINE_RMS_NORM_FAULT)]], threadgroup uchar* memory [[threadgroup(0)]],
    uint3 group [[threadgroup_position_in_grid]], uint3 position [[thread_position_in_threadgroup]],
    uint3 size [[threads_per_threadgroup]], uint lane [[thread_index_in_simdgroup]],
    uint simdgroup [[simdgroup_index_in_threadgroup]]) {
  const RowThread t = row_thread(group, position, size, lane, simdgroup);
  if (t.row >= p.rows) return;
  const bool ordered = p.present & MOE_COMBINE_RMS_NORM_HAS_ORDER;
  const bool gated = p.present & MOE_COMBINE_RMS_NORM_HAS_SHARED_GATE;
  const ulong start = ulong(t.row) * p.dim;
  const CombinedRow<T> row = {y,
                              weights,
                              {{order, ordered}, {places, ordered}, p.rows * p.topK},
                              shared + start,
                              residual + start,
                              bool(p.present & MOE_COMBINE_RMS_NORM_HAS_SHARED),
                              bool(p.present & MOE_COMBINE_RMS_NORM_HAS_RESIDUAL),
                              gated ? times_sigmoid(1.0f, 1.0f, float(sharedGate[t.row])) : 1.0f,
                              t.row * p.topK,
                              p.topK,
                              p.dim};
  if (t.index == 0) row.right(fault, MOE_COMBINE_RMS_NORM_FAULT_MISSING);
  sum += start, out += start;
  const float share = squares_of(StoredRow<T>{row, sum}, p.dim, t);
  const RowNorm<T> norm = row_norm<T>(share, scratch_of(memory, p).partial, p, t);
  for (uint i = first_element(t); i < p.dim; i = next_element(i, t)) {
    const uint n = elements_at(i, p.dim);
    store_some(out + i, norm(load_some(sum + i, n), load_some(normWeight + i, n)), n);
  }
}

#define MOE_COMBINE_RMS_NORM(name, T, W)               \
  template [[host_name("moe_combine_rms_norm_" name)]] \
  [[kernel]] decltype(moe_combine_rms_norm<T, W>) moe_combine_rms_norm<T, W>;
MOE_COMBINE_RMS_NORM("f32_f32", float, float)
MOE_COMBINE_RMS_NORM("f16_f16", half, half)
MOE_COMBINE_RMS_NORM("bf16_bf16", bfloat, bfloat)
MOE_COMBINE_RMS_NORM("f16_f32", half, float)
MOE_COMBINE_RMS_NORM("bf16_f32", bfloat, float)
