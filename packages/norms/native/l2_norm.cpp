// One threadgroup: some rows. The three kinds are one formula: x / max(sqrt(sum + eps), floor).
#include "l2_norm.params.h"
#include "norm_row.h"

using namespace mlxts;

namespace {

template <typename T>
void l2_norm(const Launch& l) {
  const auto& p = l.args<L2NormParams>();
  for_rows(l, p, [&](uint64_t row) {
    const T* x = l.buffer<const T>(L2_NORM_X) + row * p.dim;  // [dim]
    T* out = l.buffer<T>(L2_NORM_OUT) + row * p.dim;          // [dim]
    const float norm = std::sqrt(sum_of_squares(x, p.dim) + p.eps);
    // Not std::max: a NaN norm must stay NaN.
    const vf32 inverse = splat(1.0f / (norm < p.floor ? p.floor : norm));
    for_elements(p.dim, [&](size_t i, auto lanes) { lanes.store(out + i, lanes.load(x + i) * inverse); });
  });
}

}  // namespace

MLXTS_KERNEL(l2_norm_f32, l2_norm<float>)
MLXTS_KERNEL(l2_norm_f16, l2_norm<f16>)
MLXTS_KERNEL(l2_norm_bf16, l2_norm<bf16>)
