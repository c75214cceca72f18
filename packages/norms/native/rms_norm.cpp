// One threadgroup: some rows. Sum of squares in f32, then one pass that scales.
#include "rms_norm.params.h"
#include "norm_row.h"

using namespace mlxts;

namespace {

template <typename T, typename W>
void rms_norm(const Launch& l) {
  const auto& p = l.args<RmsNormParams>();
  const W* weight = l.buffer<const W>(RMS_NORM_WEIGHT);
  for_rows(l, p, [&](uint64_t row) {
    const T* x = l.buffer<const T>(RMS_NORM_X) + row * p.dim;  // [dim]
    T* out = l.buffer<T>(RMS_NORM_OUT) + row * p.dim;          // [dim]
    const auto norm = row_norm<T>(sum_of_squares(x, p.dim), p);
    for_elements(p.dim,
                 [&](size_t i, auto lanes) { lanes.store(out + i, norm(lanes.load(x + i), lanes.load(weight + i))); });
  });
}

}  // namespace

MLXTS_KERNEL(rms_norm_f32_f32, rms_norm<float, float>)
MLXTS_KERNEL(rms_norm_f16_f16, rms_norm<f16, f16>)
MLXTS_KERNEL(rms_norm_bf16_bf16, rms_norm<bf16, bf16>)
MLXTS_KERNEL(rms_norm_f16_f32, rms_norm<f16, float>)
MLXTS_KERNEL(rms_norm_bf16_f32, rms_norm<bf16, float>)
