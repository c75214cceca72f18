#include "fused_post_ff_norm2_end_layer.params.h"
#include "fused_rows_metal.h"

using namespace metal;
using namespace mlxts;

template <typename T>
kernel void fused_post_ff_norm2_end_layer(
    device const T* attn [[buffer(FUSED_POST_FF_NORM2_END_LAYER_ATTN)]],
    device const T* x [[buffer(FUSED_POST_FF_NORM2_END_LAYER_X)]],
    device const T* residual [[buffer(FUSED_POST_FF_NORM2_END_LAYER_RESIDUAL)]],
    device const T* weight2 [[buffer(FUSED_POST_FF_NORM2_END_LAYER_WEIGHT2)]],
    device const T* weight3 [[buffer(FUSED_POST_FF_NORM2_END_LAYER_WEIGHT3)]],
    device const float* scale [[buffer(FUSED_POST_FF_NORM2_END_LAYER_SCALE)]],
    device T* m [[buffer(FUSED_POST_FF_NORM2_END_LAYER_M)]],
    device T* hidden [[buffer(FUSED_POST_FF_NORM2_END_LAYER_HIDDEN)]],
    constant FusedPostFfNorm2EndLayerParams& p [[buffer(FUSED_POST_FF_NORM2_END_LAYER_PARAMS)]],
    threadgroup uchar* memory [[threadgroup(0)]], uint3 group [[threadgroup_position_in_grid]],
    uint3 position [[thread_position_in_threadgroup]], uint3 size [[threads_per_threadgroup]],
    uint lane [[thread_index_in_simdgroup]], uint simdgroup [[simdgroup_index_in_threadgroup]]) {
  const RowThread t = row_thread(group, position, size, lane, simdgroup);
  if (t.row >= p.rows) return;
  const ulong start = ulong(t.row) * p.dim;
  const bool stored = p.present & FUSED_POST_FF_NORM2_END_LAYER_HAS_M;
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
  end.compute(RowElements<T>{x + start}, scratch.partial, scratch.second, p, t);
}

#define FUSED_POST_FF_NORM2_END_LAYER(name, T)                                                                        \
  template [[host_name("fused_post_ff_norm2_end_layer_" name)]] [[kernel]] decltype(fused_post_ff_norm2_end_layer<T>) \
      fused_post_ff_norm2_end_layer<T>;
FUSED_POST_FF_NORM2_END_LAYER("f32", float)
FUSED_POST_FF_NORM2_END_LAYER("f16", half)
FUSED_POST_FF_NORM2_END_LAYER("bf16", bfloat)
