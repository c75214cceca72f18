// One threadgroup: some rows.
#include "rms_norm_no_scale_dual.params.h"
#include "norm_row.h"

using namespace mlxts;

namespace {

template <typename T>
void rms_norm_no_scale_dual(const Launch& l) {
  const auto& p = l.args<RmsNormNoScaleDualParams>();
  const uint64_t tokens = p.rows / p.heads;
  for_rows(l, p, [&](uint64_t row) {
    const uint64_t place = row % p.heads * tokens + row / p.heads;
    const float* x = l.buffer<const float>(RMS_NORM_NO_SCALE_DUAL_X) + row * p.dim;  // [dim]
    float* out = l.buffer<float>(RMS_NORM_NO_SCALE_DUAL_OUT) + row * p.dim;          // [dim]
    T* out16 = l.buffer<T>(RMS_NORM_NO_SCALE_DUAL_OUT16) + place * p.dim;            // [dim]
    const vf32 inverse = inverse_rms(sum_of_squares(x, p.dim), p);
    for_elements(p.dim, [&](size_t i, auto lanes) {
      const vf32 normed = lanes.load(x + i) * inverse;
      lanes.store(out + i, normed);
      lanes.store(out16 + i, normed);
    });
  });
}

}  // namespace

MLXTS_KERNEL(rms_norm_no_scale_dual_f32_f16, rms_norm_no_scale_dual<f16>)
MLXTS_KERNEL(rms_norm_no_scale_dual_f32_bf16, rms_norm_no_scale_dual<bf16>)
