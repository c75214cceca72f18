// One threadgroup: some rows. res is in its output, or in scratch.
#include "fused_post_attn_triple_norm.params.h"
#include "fused_rows.h"

using namespace mlxts;

namespace {

template <typename T>
void fused_post_attn_triple_norm(const Launch& l) {
  const auto& p = l.args<FusedPostAttnTripleNormParams>();
  const auto weight = [&](int buffer, uint32_t bit) {
    return RowWeights<T>{l.buffer<const void>(buffer), bool(p.f32Weights & bit)};
  };
  T* stored = l.buffer<T>(FUSED_POST_ATTN_TRIPLE_NORM_RES);
  for_rows(l, p, [&](uint64_t row) {
    const uint64_t start = row * p.dim;
    const T* hidden = l.buffer<const T>(FUSED_POST_ATTN_TRIPLE_NORM_HIDDEN) + start;  // [dim]
    const T* attn = l.buffer<const T>(FUSED_POST_ATTN_TRIPLE_NORM_ATTN) + start;      // [dim]
    T* res = stored ? stored + start : reinterpret_cast<T*>(scratch_of(l, p).res);    // [dim]
    const auto post = weight(FUSED_POST_ATTN_TRIPLE_NORM_WEIGHT_POST, 1);
    const ThreeOutputs<T> outputs = {
        {weight(FUSED_POST_ATTN_TRIPLE_NORM_WEIGHT_A, 2), weight(FUSED_POST_ATTN_TRIPLE_NORM_WEIGHT_B, 4),
         weight(FUSED_POST_ATTN_TRIPLE_NORM_WEIGHT_C, 8)},
        {l.buffer<T>(FUSED_POST_ATTN_TRIPLE_NORM_OUT_A) + start, l.buffer<T>(FUSED_POST_ATTN_TRIPLE_NORM_OUT_B) + start,
         l.buffer<T>(FUSED_POST_ATTN_TRIPLE_NORM_OUT_C) + start}};
    const float squares = add_norm(attn, row_norm<T>(sum_of_squares_asking(attn, p.dim, hidden, res), p), post, hidden,
                                   res, outputs.out[0], p.dim);
    outputs.store(res, row_norm<T>(squares, p), p.dim, attn + p.dim);
  });
}

}  // namespace

MLXTS_KERNEL(fused_post_attn_triple_norm_f32, fused_post_attn_triple_norm<float>)
MLXTS_KERNEL(fused_post_attn_triple_norm_f16, fused_post_attn_triple_norm<f16>)
MLXTS_KERNEL(fused_post_attn_triple_norm_bf16, fused_post_attn_triple_norm<bf16>)
