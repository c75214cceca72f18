// One threadgroup: some rows. A row's sums are squared as they are stored, then read again and scaled.
#include "add_rms_norm.params.h"
#include "norm_row.h"

using namespace mlxts;

namespace {

template <typename T, typename W>
void add_rms_norm(const Launch& l) {
  const auto& p = l.args<AddRmsNormParams>();
  const W* weight = l.buffer<const W>(ADD_RMS_NORM_WEIGHT);
  for_rows(l, p, [&](uint64_t row) {
    const T* a = l.buffer<const T>(ADD_RMS_NORM_A) + row * p.dim;  // [dim]
    const T* b = l.buffer<const T>(ADD_RMS_NORM_B) + row * p.dim;  // [dim]
    T* sum = l.buffer<T>(ADD_RMS_NORM_SUM) + row * p.dim;          // [dim]
    T* out = l.buffer<T>(ADD_RMS_NORM_OUT) + row * p.dim;          // [dim]
    const float squares = sum_of_squares_of(p.dim, [&](size_t i, auto lanes) {
      const vf32 v = as_stored<T>(lanes.load(a + i) + lanes.load(b + i));
      lanes.store_exact(sum + i, v);
      return v;
    });
    const auto norm = row_norm<T>(squares, p);
    for_elements(
        p.dim, [&](size_t i, auto lanes) { lanes.store(out + i, norm(lanes.load(sum + i), lanes.load(weight + i))); });
  });
}

}  // namespace

MLXTS_KERNEL(add_rms_norm_f32_f32, add_rms_norm<float, float>)
MLXTS_KERNEL(add_rms_norm_f16_f16, add_rms_norm<f16, f16>)
MLXTS_KERNEL(add_rms_norm_bf16_bf16, add_rms_norm<bf16, bf16>)
MLXTS_KERNEL(add_rms_norm_f16_f32, add_rms_norm<f16, float>)
MLXTS_KERNEL(add_rms_norm_bf16_f32, add_rms_norm<bf16, float>)
