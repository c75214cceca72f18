// One threadgroup: one token. Its sums are stored, then squared, then scaled: of many tokens, to square them as they are stored
// takes longer.
#include "combined_row.h"
#include "moe_combine_rms_norm.params.h"

using namespace mlxts;

namespace {

template <typename T, typename W>
int32_t moe_combine_rms_norm(const Launch& l) {
  const auto& p = l.args<MoeCombineRmsNormParams>();
  const CombinedRows<T> rows = {
      l.buffer<const T>(MOE_COMBINE_RMS_NORM_Y),
      l.buffer<const float>(MOE_COMBINE_RMS_NORM_WEIGHTS),
      {l.indices(MOE_COMBINE_RMS_NORM_ORDER), l.indices(MOE_COMBINE_RMS_NORM_PLACES), p.rows * p.topK},
      l.buffer<const T>(MOE_COMBINE_RMS_NORM_SHARED),
      l.buffer<const T>(MOE_COMBINE_RMS_NORM_SHARED_GATE),
      l.buffer<const T>(MOE_COMBINE_RMS_NORM_RESIDUAL),
      p.topK,
      p.dim};
  const W* weight = l.buffer<const W>(MOE_COMBINE_RMS_NORM_NORM_WEIGHT);  // [dim]
  for (uint64_t token = l.begin; token < l.end; ++token) {
    if (!rows.right(token, l, MOE_COMBINE_RMS_NORM_FAULT_MISSING)) return 1;
    const CombinedRow<T> row = rows.at(token);
    T* sum = l.buffer<T>(MOE_COMBINE_RMS_NORM_SUM) + token * p.dim;  // [dim]
    T* out = l.buffer<T>(MOE_COMBINE_RMS_NORM_OUT) + token * p.dim;  // [dim]
    for_elements(p.dim, [&](size_t i, auto lanes) { lanes.store(sum + i, row(i, lanes)); });
    const auto norm = row_norm<T>(sum_of_squares(sum, p.dim), p);
    for_elements(
        p.dim, [&](size_t i, auto lanes) { lanes.store(out + i, norm(lanes.load(sum + i), lanes.load(weight + i))); });
  }
  return 0;
}

}  // namespace

MLXTS_KERNEL(moe_combine_rms_norm_f32_f32, moe_combine_rms_norm<float, float>)
MLXTS_KERNEL(moe_combine_rms_norm_f16_f16, moe_combine_rms_norm<f16, f16>)
MLXTS_KERNEL(moe_combine_rms_norm_bf16_bf16, moe_combine_rms_norm<bf16, bf16>)
MLXTS_KERNEL(moe_combine_rms_norm_f16_f32, moe_combine_rms_norm<f16, float>)
MLXTS_KERNEL(moe_combine_rms_norm_bf16_f32, moe_combine_rms_norm<bf16, float>)
