// One threadgroup: one token.
#include "combined_row.h"
#include "moe_combine.params.h"

using namespace mlxts;

namespace {

template <typename T>
int32_t moe_combine(const Launch& l) {
  const auto& p = l.args<MoeCombineParams>();
  const CombinedRows<T> rows = {
      l.buffer<const T>(MOE_COMBINE_Y),
      l.buffer<const float>(MOE_COMBINE_WEIGHTS),
      {l.indices(MOE_COMBINE_ORDER), l.indices(MOE_COMBINE_PLACES), p.tokens * p.topK},
      l.buffer<const T>(MOE_COMBINE_SHARED),
      l.buffer<const T>(MOE_COMBINE_SHARED_GATE),
      l.buffer<const T>(MOE_COMBINE_RESIDUAL),
      p.topK,
      p.dim};
  for (uint64_t token = l.begin; token < l.end; ++token) {
    if (!rows.right(token, l, MOE_COMBINE_FAULT_MISSING)) return 1;
    const CombinedRow<T> row = rows.at(token);
    T* out = l.buffer<T>(MOE_COMBINE_OUT) + token * p.dim;  // [dim]
    for_elements(p.dim, [&](size_t i, auto lanes) { lanes.store(out + i, row(i, lanes)); });
  }
  return 0;
}

}  // namespace

MLXTS_KERNEL(moe_combine_f32, moe_combine<float>)
MLXTS_KERNEL(moe_combine_f16, moe_combine<f16>)
MLXTS_KERNEL(moe_combine_bf16, moe_combine<bf16>)
