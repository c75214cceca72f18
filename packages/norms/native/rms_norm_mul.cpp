// One threadgroup: some rows.
#include "rms_norm_mul.params.h"
#include "norm_row.h"

using namespace mlxts;

namespace {

template <typename T, typename W>
void rms_norm_mul(const Launch& l) {
  const auto& p = l.args<RmsNormMulParams>();
  const W* weight = l.buffer<const W>(RMS_NORM_MUL_WEIGHT);
  for_rows(l, p, [&](uint64_t row) {
    const T* x = l.buffer<const T>(RMS_NORM_MUL_X) + row * p.dim;            // [dim]
    const T* factor = l.buffer<const T>(RMS_NORM_MUL_FACTOR) + row * p.dim;  // [dim]
    T* out = l.buffer<T>(RMS_NORM_MUL_OUT) + row * p.dim;                    // [dim]
    const auto norm = row_norm<T>(sum_of_squares(x, p.dim), p);
    for_elements(p.dim, [&](size_t i, auto lanes) {
      const vf32 normed = norm(lanes.load(x + i), lanes.load(weight + i));
      lanes.store(out + i, (p.roundIntermediate ? as_stored<T>(normed) : normed) * lanes.load(factor + i));
    });
  });
}

}  // namespace

MLXTS_KERNEL(rms_norm_mul_f32_f32, rms_norm_mul<float, float>)
MLXTS_KERNEL(rms_norm_mul_f16_f16, rms_norm_mul<f16, f16>)
MLXTS_KERNEL(rms_norm_mul_bf16_bf16, rms_norm_mul<bf16, bf16>)
MLXTS_KERNEL(rms_norm_mul_f16_f32, rms_norm_mul<f16, float>)
MLXTS_KERNEL(rms_norm_mul_bf16_f32, rms_norm_mul<bf16, float>)
