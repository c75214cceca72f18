// One threadgroup: some rows. Sum of squares in f32, then one pass that scales and gates; options are compiled in.
#include "gated_rms_norm.params.h"
#include "norm_row.h"

using namespace mlxts;

namespace {

// x · silu(z), or x · σ(z).
template <typename T, bool Sigmoid>
MLXTS_INLINE vf32 gated(vf32 x, vf32 z) {
  return times_sigmoid<T>(x, Sigmoid ? splat(1.0f) : z, z);
}

template <bool Round, bool Sigmoid, bool GateFirst, typename T, typename W>
void rows(const Launch& l) {
  const auto& p = l.args<GatedRmsNormParams>();
  const W* weight = l.buffer<const W>(GATED_RMS_NORM_WEIGHT);
  const vf32 offset = splat(p.weightOffset);
  for_rows(l, p, [&](uint64_t row) {
    const T* x = l.buffer<const T>(GATED_RMS_NORM_X) + row * p.dim;  // [dim]
    const T* z = l.buffer<const T>(GATED_RMS_NORM_Z) + row * p.dim;  // [dim]
    T* out = l.buffer<T>(GATED_RMS_NORM_OUT) + row * p.dim;          // [dim]
    const auto input = [&](size_t i, auto lanes) {
      return GateFirst ? gated<T, Sigmoid>(lanes.load(x + i), lanes.load(z + i)) : lanes.load(x + i);
    };
    const vf32 inverse = inverse_rms(sum_of_squares_of(p.dim, input), p);
    for_elements(p.dim, [&](size_t i, auto lanes) {
      vf32 normed = input(i, lanes) * inverse;
      if constexpr (Round) normed = round_to<T>(normed);
      vf32 scaled = normed * (lanes.load(weight + i) + offset);
      if constexpr (Round && !GateFirst && std::is_same_v<T, W>) scaled = round_to<T>(scaled);
      if constexpr (!GateFirst) scaled = gated<T, Sigmoid>(scaled, lanes.load(z + i));
      lanes.store(out + i, scaled);
    });
  });
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
