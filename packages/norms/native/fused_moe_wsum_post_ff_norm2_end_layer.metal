#include "fused_moe_wsum_post_ff_norm2_end_layer.params.h"
#include "fused_rows_metal.h"

using namespace metal;
using namespace mlxts;

// The weighted sum of a row's experts, rounded to T. Each pass adds them up again.
template <typename T>
struct AddedExperts {
  device const T* experts;      // [topK, dim]
  device const float* routing;  // [topK]
  uint topK, dim;

  METAL_FUNC float4 operator()(uint i, uint count) const {
    float4 sum = float4(0.0f);
    for (uint k = 0; k < topK; ++k) sum = fma(load_some(experts + ulong(k) * dim + i, count), float4(routing[k]), sum);
    return round4<T>(sum);
  }
};

template <typename T>
kernel void fused_moe_wsum_post_ff_norm2_end_layer(
    device const T* attn [[buffer(FUSED_MOE_WSUM_POST_FF_NORM2_END_LAYER_ATTN)]],
    device const T* experts [[buffer(FUSED_MOE_WSUM_POST_FF_NORM2_END_LAYER_EXPERTS)]],
    device const float* routing [[buffer(FUSED_MOE_WSUM_POST_FF_NORM2_END_LAYER_ROUTING)]],
    device const T* residual [[buffer(FUSED_MOE_WSUM_POST_FF_NORM2_END_LAYER_RESIDUAL)]],
    device const T* weight2 [[buffer(FUSED_MOE_WSUM_POST_FF_NORM2_END_LAYER_WEIGHT2)]],
    device const T* weight3 [[buffer(FUSED_MOE_WSUM_POST_FF_NORM2_END_LAYER_WEIGHT3)]],
    device const float* scale [[buffer(FUSED_MOE_WSUM_POST_FF_NORM2_END_LAYER_SCALE)]],
    device T* m [[buffer(FUSED_MOE_WSUM_POST_FF_NORM2_END_LAYER_M)]],
    device T* hidden [[buffer(FUSED_MOE_WSUM_POST_FF_NORM2_END_LAYER_HIDDEN)]],
    constant FusedMoeWsumPostFfNorm2EndLayerParams& p [[buffer(FUSED_MOE_WSUM_POST_FF_NORM2_END_LAYER_PARAMS)]],
    threadgroup uchar* memory [[threadgroup(0)]], uint3 group [[threadgroup_position_in_grid]],
    uint3 position [[thread_position_in_threadgroup]], uint3 size [[threads_per_threadgroup]],
    uint lane [[thread_index_in_simdgroup]], uint simdgroup [[simdgroup_index_in_threadgroup]]) {
  const RowThread t = row_thread(group, position, size, lane, simdgroup);
  if (t.row >= p.rows) return;
  const ulong start = ulong(t.row) * p.dim;
  const bool stored = p.present & FUSED_MOE_WSUM_POST_FF_NORM2_END_LAYER_HAS_M;
  const EndOfLayer<T> end = {{weight2, bool(p.f32Weights & 1)},
                             {weight3, bool(p.f32Weights & 2)},
                             attn + start,
                             residual + start,
                             scale,
                             bool(p.vectorScale),
                             stored ? m + start : m,
                             hidden + start,
                             stored};
  const auto scratch = scratch_of(memory, p);
  const AddedExperts<T> x = {experts + start * p.topK, routing + ulong(t.row) * p.topK, p.topK, p.dim};
  end.compute(x, scratch.partial, scratch.second, p, t);
}

#define FUSED_MOE_WSUM_POST_FF_NORM2_END_LAYER(name, T)                  \
  template [[host_name("fused_moe_wsum_post_ff_norm2_end_layer_" name)]] \
  [[kernel]] decltype(fused_moe_wsum_post_ff_norm2_end_layer<T>) fused_moe_wsum_post_ff_norm2_end_layer<T>;
FUSED_MOE_WSUM_POST_FF_NORM2_END_LAYER("f32", float)
FUSED_MOE_WSUM_POST_FF_NORM2_END_LAYER("f16", half)
FUSED_MOE_WSUM_POST_FF_NORM2_END_LAYER("bf16", bfloat)
