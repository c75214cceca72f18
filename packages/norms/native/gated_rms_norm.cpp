// One threadgroup: some rows. Sum of squares in f32, then one pass that scales and gates; options are compiled in.
#include "cpu_kernel.h"
#include "gated_rms_norm.params.h"
#include "simd.h"

using namespace mlxts;

namespace {

// x · silu(z), or x · σ(z).
template <bool Sigmoid>
MLXTS_INLINE vf32 gated(vf32 x, vf32 z) {
  return times_sigmoid(x, Sigmoid ? splat(1.0f) : z, z);
}

// Sum of (x * activation(z))^2.
template <bool Sigmoid, typename T>
float sum_of_gated_squares(const T* x, const T* z, size_t n) {
  vf32 sum[2] = {};
  size_t i = 0;
  for (; i + 2 * kLanes <= n; i += 2 * kLanes)
    for (int j = 0; j < 2; ++j) {
      const vf32 v = gated<Sigmoid>(load(x + i + j * kLanes), load(z + i + j * kLanes));
      sum[j] = fma(v, v, sum[j]);
    }
  for_lanes(
      n - i,
      [&](size_t k) {
        const vf32 v = gated<Sigmoid>(load(x + i + k), load(z + i + k));
        sum[0] = fma(v, v, sum[0]);
      },
      [&](size_t k, int m) {
        const vf32 v = gated<Sigmoid>(load_partial(x + i + k, m), load_partial(z + i + k, m));
        sum[1] = fma(v, v, sum[1]);
      });
  return reduce_add(sum[0] + sum[1]);
}

template <bool Round, bool Sigmoid, bool GateFirst, typename T, typename W>
void rows(const Launch& l) {
  const auto& p = l.args<GatedRmsNormParams>();
  const uint64_t first = l.begin * p.rowsPerThreadgroup;
  const uint64_t last = l.end == l.threadgroups[0] ? p.rows : l.end * p.rowsPerThreadgroup;
  const W* weight = l.buffer<const W>(GATED_RMS_NORM_WEIGHT);
  const vf32 offset = splat(p.weightOffset);
  for (uint64_t row = first; row < last; ++row) {
    const T* x = l.buffer<const T>(GATED_RMS_NORM_X) + row * p.dim;  // [dim]
    const T* z = l.buffer<const T>(GATED_RMS_NORM_Z) + row * p.dim;  // [dim]
    T* out = l.buffer<T>(GATED_RMS_NORM_OUT) + row * p.dim;          // [dim]
    const float squares = GateFirst ? sum_of_gated_squares<Sigmoid>(x, z, p.dim) : sum_of_squares(x, p.dim);
    const vf32 inv = splat(1.0f / std::sqrt(squares / float(p.dim) + p.eps));
    const auto scale = [&](vf32 v, vf32 gate, vf32 w) {
      vf32 normed = (GateFirst ? gated<Sigmoid>(v, gate) : v) * inv;
      if constexpr (Round) normed = round_to<T>(normed);
      vf32 scaled = normed * (w + offset);
      if constexpr (GateFirst) return scaled;
      if constexpr (Round && std::is_same_v<T, W>) scaled = round_to<T>(scaled);
      return gated<Sigmoid>(scaled, gate);
    };
    for_lanes(
        p.dim, [&](size_t i) { store(out + i, scale(load(x + i), load(z + i), load(weight + i))); },
        [&](size_t i, int n) {
          store_partial(out + i, scale(load_partial(x + i, n), load_partial(z + i, n), load_partial(weight + i, n)), n);
        });
  }
}

template <typename T, typename W>
void gated_rms_norm(const Launch& l) {
  const auto& p = l.args<GatedRmsNormParams>();
  const auto pick = [&]<bool Round, bool Sigmoid>() {
    p.gateFirst ? rows<Round, Sigmoid, true, T, W>(l) : rows<Round, Sigmoid, false, T, W>(l);
  };
  if (p.roundBeforeWeight)
    p.sigmoidGate ? pick.template operator()<true, true>() : pick.template operator()<true, false>();
  else
    p.sigmoidGate ? pick.template operator()<false, true>() : pick.template operator()<false, false>();
}

}  // namespace

MLXTS_KERNEL(gated_rms_norm_f32_f32, gated_rms_norm<float, float>)
MLXTS_KERNEL(gated_rms_norm_f16_f16, gated_rms_norm<f16, f16>)
MLXTS_KERNEL(gated_rms_norm_bf16_bf16, gated_rms_norm<bf16, bf16>)
MLXTS_KERNEL(gated_rms_norm_f16_f32, gated_rms_norm<f16, float>)
MLXTS_KERNEL(gated_rms_norm_bf16_f32, gated_rms_norm<bf16, float>)
