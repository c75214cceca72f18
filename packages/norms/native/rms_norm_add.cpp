// One threadgroup: some rows.
#include "rms_norm_add.params.h"
#include "norm_row.h"

using namespace mlxts;

namespace {

template <typename T, typename W>
void rms_norm_add(const Launch& l) {
  const auto& p = l.args<RmsNormAddParams>();
  const W* weight = l.buffer<const W>(RMS_NORM_ADD_WEIGHT);
  for_rows(l, p, [&](uint64_t row) {
    const T* x = l.buffer<const T>(RMS_NORM_ADD_X) + row * p.dim;                // [dim]
    const T* residual = l.buffer<const T>(RMS_NORM_ADD_RESIDUAL) + row * p.dim;  // [dim]
    T* out = l.buffer<T>(RMS_NORM_ADD_OUT) + row * p.dim;                        // [dim]
    const auto norm = row_norm<T>(sum_of_squares(x, p.dim), p);
    for_elements(p.dim, [&](size_t i, auto lanes) {
      const vf32 normed = as_stored<T>(norm(lanes.load(x + i), lanes.load(weight + i)));
      lanes.store(out + i, lanes.load(residual + i) + normed);
    });
  });
}

}  // namespace

MLXTS_KERNEL(rms_norm_add_f32_f32, rms_norm_add<float, float>)
MLXTS_KERNEL(rms_norm_add_f16_f16, rms_norm_add<f16, f16>)
MLXTS_KERNEL(rms_norm_add_bf16_bf16, rms_norm_add<bf16, bf16>)
MLXTS_KERNEL(rms_norm_add_f16_f32, rms_norm_add<f16, float>)
MLXTS_KERNEL(rms_norm_add_bf16_f32, rms_norm_add<bf16, float>)
