// One threadgroup: a block of rows of q and k, each divided by √(Σx² + eps).
#include "cpu_kernel.h"
#include "qk_norm.params.h"
#include "simd.h"

using namespace mlxts;

namespace {

template <typename T>
void qk_norm(const Launch& l) {
  const auto& p = l.args<QkNormParams>();
  const uint64_t first = l.begin * p.rowsPerThreadgroup;
  const uint64_t last = l.end * p.rowsPerThreadgroup < p.rows ? l.end * p.rowsPerThreadgroup : p.rows;
  const auto normalise = [&](const T* from, T* to) {
    const vf32 inverse = splat(1.0f / std::sqrt(sum_of_squares(from, p.dim) + p.eps));
    for_lanes(
        p.dim, [&](size_t i) { store(to + i, load(from + i) * inverse); },
        [&](size_t i, int n) { store_partial(to + i, load_partial(from + i, n) * inverse, n); });
  };
  for (uint64_t row = first; row < last; ++row) {
    const size_t at = row * p.dim;
    normalise(l.buffer<const T>(QK_NORM_Q) + at, l.buffer<T>(QK_NORM_Q_UNIT) + at);
    normalise(l.buffer<const T>(QK_NORM_K) + at, l.buffer<T>(QK_NORM_K_UNIT) + at);
  }
}

}  // namespace

MLXTS_KERNEL(qk_norm_f32, qk_norm<float>)
MLXTS_KERNEL(qk_norm_f16, qk_norm<f16>)
MLXTS_KERNEL(qk_norm_bf16, qk_norm<bf16>)
