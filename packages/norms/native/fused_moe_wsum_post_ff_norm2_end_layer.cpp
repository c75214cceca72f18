// One threadgroup: some rows. The experts of a row are added up into scratch.
#include "fused_moe_wsum_post_ff_norm2_end_layer.params.h"
#include "fused_rows.h"

using namespace mlxts;

namespace {

// Stores the weighted sum of topK rows, rounded to T, and gives its sum of squares.
template <typename T>
MLXTS_INLINE float add_experts(const T* experts, const float* routing, uint32_t topK, size_t dim, T* to) {
  return sum_of_squares_of(dim, [&](size_t i, auto lanes) {
    vf32 total = {};
    for (uint32_t k = 0; k < topK; ++k) total = fma(lanes.load(experts + k * dim + i), splat(routing[k]), total);
    total = as_stored<T>(total);
    lanes.store_exact(to + i, total);
    return total;
  });
}

template <typename T>
void fused_moe_wsum_post_ff_norm2_end_layer(const Launch& l) {
  const auto& p = l.args<FusedMoeWsumPostFfNorm2EndLayerParams>();
  T* stored = l.buffer<T>(FUSED_MOE_WSUM_POST_FF_NORM2_END_LAYER_M);
  T* x = reinterpret_cast<T*>(scratch_of(l, p).x);  // [dim]
  for_rows(l, p, [&](uint64_t row) {
    const uint64_t start = row * p.dim;
    const T* experts = l.buffer<const T>(FUSED_MOE_WSUM_POST_FF_NORM2_END_LAYER_EXPERTS) + start * p.topK;
    const float* routing = l.buffer<const float>(FUSED_MOE_WSUM_POST_FF_NORM2_END_LAYER_ROUTING) + row * p.topK;
    const EndOfLayer<T> end = {
        {l.buffer<const void>(FUSED_MOE_WSUM_POST_FF_NORM2_END_LAYER_WEIGHT2), bool(p.f32Weights & 1)},
        {l.buffer<const void>(FUSED_MOE_WSUM_POST_FF_NORM2_END_LAYER_WEIGHT3), bool(p.f32Weights & 2)},
        l.buffer<const T>(FUSED_MOE_WSUM_POST_FF_NORM2_END_LAYER_ATTN) + start,
        l.buffer<const T>(FUSED_MOE_WSUM_POST_FF_NORM2_END_LAYER_RESIDUAL) + start,
        l.buffer<const float>(FUSED_MOE_WSUM_POST_FF_NORM2_END_LAYER_SCALE),
        bool(p.vectorScale),
        stored ? stored + start : reinterpret_cast<T*>(scratch_of(l, p).m),
        l.buffer<T>(FUSED_MOE_WSUM_POST_FF_NORM2_END_LAYER_HIDDEN) + start};
    end.compute(x, add_experts(experts, routing, p.topK, p.dim, x), p, experts + p.dim * p.topK);
  });
}

}  // namespace

MLXTS_KERNEL(fused_moe_wsum_post_ff_norm2_end_layer_f32, fused_moe_wsum_post_ff_norm2_end_layer<float>)
MLXTS_KERNEL(fused_moe_wsum_post_ff_norm2_end_layer_f16, fused_moe_wsum_post_ff_norm2_end_layer<f16>)
MLXTS_KERNEL(fused_moe_wsum_post_ff_norm2_end_layer_bf16, fused_moe_wsum_post_ff_norm2_end_layer<bf16>)
