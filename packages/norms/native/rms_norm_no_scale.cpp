// One threadgroup: some rows.
#include "rms_norm_no_scale.params.h"
#include "norm_row.h"

using namespace mlxts;

namespace {

template <typename T>
void rms_norm_no_scale(const Launch& l) {
  const auto& p = l.args<RmsNormNoScaleParams>();
  for_rows(l, p, [&](uint64_t row) {
    const T* x = l.buffer<const T>(RMS_NORM_NO_SCALE_X) + row * p.dim;  // [dim]
    T* out = l.buffer<T>(RMS_NORM_NO_SCALE_OUT) + row * p.dim;          // [dim]
    const vf32 inverse = inverse_rms(sum_of_squares(x, p.dim), p);
    for_elements(p.dim, [&](size_t i, auto lanes) { lanes.store(out + i, lanes.load(x + i) * inverse); });
  });
}

}  // namespace

MLXTS_KERNEL(rms_norm_no_scale_f32, rms_norm_no_scale<float>)
MLXTS_KERNEL(rms_norm_no_scale_f16, rms_norm_no_scale<f16>)
MLXTS_KERNEL(rms_norm_no_scale_bf16, rms_norm_no_scale<bf16>)
