// One threadgroup: some rows.
#include "fused_post_ff_norm2_end_layer.params.h"
#include "fused_rows.h"

using namespace mlxts;

namespace {

template <typename T>
void fused_post_ff_norm2_end_layer(const Launch& l) {
  const auto& p = l.args<FusedPostFfNorm2EndLayerParams>();
  T* stored = l.buffer<T>(FUSED_POST_FF_NORM2_END_LAYER_M);
  for_rows(l, p, [&](uint64_t row) {
    const uint64_t start = row * p.dim;
    const T* x = l.buffer<const T>(FUSED_POST_FF_NORM2_END_LAYER_X) + start;  // [dim]
    const EndOfLayer<T> end = {{l.buffer<const void>(FUSED_POST_FF_NORM2_END_LAYER_WEIGHT2), bool(p.f32Weights & 1)},
                               {l.buffer<const void>(FUSED_POST_FF_NORM2_END_LAYER_WEIGHT3), bool(p.f32Weights & 2)},
                               l.buffer<const T>(FUSED_POST_FF_NORM2_END_LAYER_ATTN) + start,
                               l.buffer<const T>(FUSED_POST_FF_NORM2_END_LAYER_RESIDUAL) + start,
                               l.buffer<const float>(FUSED_POST_FF_NORM2_END_LAYER_SCALE),
                               bool(p.vectorScale),
                               stored ? stored + start : reinterpret_cast<T*>(scratch_of(l, p).m),
                               l.buffer<T>(FUSED_POST_FF_NORM2_END_LAYER_HIDDEN) + start};
    end.compute(x, sum_of_squares_asking(x, p.dim, end.attn, end.m), p, x + p.dim);
  });
}

}  // namespace

MLXTS_KERNEL(fused_post_ff_norm2_end_layer_f32, fused_post_ff_norm2_end_layer<float>)
MLXTS_KERNEL(fused_post_ff_norm2_end_layer_f16, fused_post_ff_norm2_end_layer<f16>)
MLXTS_KERNEL(fused_post_ff_norm2_end_layer_bf16, fused_post_ff_norm2_end_layer<bf16>)
