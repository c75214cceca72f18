// One threadgroup: some rows of q and of k, or of one of them, each divided by max(√(Σx² + eps), normFloor), or copied;
// zeros for tokens that the mask skips.
#include <utility>

#include "cpu_kernel.h"
#include "qk_norm.params.h"
#include "simd.h"

using namespace mlxts;

namespace {

template <typename T>
void normalize(T* to, const T* from, const QkNormParams& p) {
  if (!p.qkNorm) {
    memcpy(to, from, p.dim * sizeof(T));
    return;
  }
  const float norm = std::sqrt(sum_of_squares(from, p.dim) + p.eps);
  const vf32 inverse = splat(1.0f / (norm < p.normFloor ? p.normFloor : norm));
  for_lanes(
      p.dim, [&](size_t i) { store(to + i, load(from + i) * inverse); },
      [&](size_t i, int n) { store_partial(to + i, load_partial(from + i, n) * inverse, n); });
}

template <typename T>
void qk_norm(const Launch& l) {
  const auto& p = l.args<QkNormParams>();
  const uint8_t* mask = l.buffer<const uint8_t>(QK_NORM_MASK);
  const auto pair = [&](uint32_t from, uint32_t to) {
    return std::pair(l.buffer<const T>(from), l.buffer<T>(to));
  };
  const size_t first = l.begin * QK_NORM_ROWS_PER_THREADGROUP, end = l.end * QK_NORM_ROWS_PER_THREADGROUP;
  for (size_t row = first; row < end && row < p.rows; ++row) {
    const size_t at = row * p.dim;
    const bool skipped = mask && !mask[row / p.keyHeads];
    for (const auto& [from, to] : {pair(QK_NORM_Q, QK_NORM_Q_UNIT), pair(QK_NORM_K, QK_NORM_K_UNIT)}) {
      if (!from) continue;
      if (skipped)
        memset(to + at, 0, p.dim * sizeof(T));
      else
        normalize(to + at, from + at, p);
    }
  }
}

}  // namespace

MLXTS_KERNEL(qk_norm_f32, qk_norm<float>)
MLXTS_KERNEL(qk_norm_f16, qk_norm<f16>)
MLXTS_KERNEL(qk_norm_bf16, qk_norm<bf16>)
