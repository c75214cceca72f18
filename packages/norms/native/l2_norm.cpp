// One threadgroup: some rows. The three kinds are one formula: x / max(sqrt(sum + eps), floor).
#include "cpu_kernel.h"
#include "l2_norm.params.h"
#include "simd.h"

using namespace mlxts;

namespace {

template <typename T>
void l2_norm(const Launch& l) {
  const auto& p = l.args<L2NormParams>();
  const uint64_t first = l.begin * p.rowsPerThreadgroup;
  const uint64_t last = l.end == l.threadgroups[0] ? p.rows : l.end * p.rowsPerThreadgroup;
  for (uint64_t row = first; row < last; ++row) {
    const T* x = l.buffer<const T>(L2_NORM_X) + row * p.dim;  // [dim]
    T* out = l.buffer<T>(L2_NORM_OUT) + row * p.dim;          // [dim]
    const float norm = std::sqrt(sum_of_squares(x, p.dim) + p.eps);
    // Not std::max: a NaN norm must stay NaN.
    const vf32 inv = splat(1.0f / (norm < p.floor ? p.floor : norm));
    for_lanes(
        p.dim, [&](size_t i) { store(out + i, load(x + i) * inv); },
        [&](size_t i, int n) { store_partial(out + i, load_partial(x + i, n) * inv, n); });
  }
}

}  // namespace

MLXTS_KERNEL(l2_norm_f32, l2_norm<float>)
MLXTS_KERNEL(l2_norm_f16, l2_norm<f16>)
MLXTS_KERNEL(l2_norm_bf16, l2_norm<bf16>)
