// One threadgroup: one row. Sum of squares in f32, then one pass that scales.
#include "cpu_kernel.h"
#include "rms_norm.params.h"
#include "simd.h"

using namespace mlxts;

namespace {

template <typename T, typename W>
void rms_norm(const Launch& l) {
  const auto& p = l.args<RmsNormParams>();
  const T* x = l.buffer<const T>(RMS_NORM_X);
  const W* weight = l.buffer<const W>(RMS_NORM_WEIGHT);
  T* out = l.buffer<T>(RMS_NORM_OUT);
  const vf32 offset = splat(p.weightOffset);
  for (uint64_t row = l.begin; row < l.end; ++row) {
    const T* from = x + row * p.dim;  // [dim]
    T* to = out + row * p.dim;        // [dim]
    const vf32 inv = splat(1.0f / std::sqrt(sum_of_squares(from, p.dim) / float(p.dim) + p.eps));
    const auto scale = [&](vf32 v, vf32 w) {
      const vf32 normed = v * inv;
      return (p.roundBeforeWeight ? round_to<T>(normed) : normed) * (w + offset);
    };
    for_lanes(
        p.dim, [&](size_t i) { store(to + i, scale(load(from + i), load(weight + i))); },
        [&](size_t i, int n) {
          store_partial(to + i, scale(load_partial(from + i, n), load_partial(weight + i, n)), n);
        });
  }
}

}  // namespace

MLXTS_KERNEL(rms_norm_f32_f32, rms_norm<float, float>)
MLXTS_KERNEL(rms_norm_f16_f16, rms_norm<f16, f16>)
MLXTS_KERNEL(rms_norm_bf16_bf16, rms_norm<bf16, bf16>)
MLXTS_KERNEL(rms_norm_f16_f32, rms_norm<f16, float>)
MLXTS_KERNEL(rms_norm_bf16_f32, rms_norm<bf16, float>)
