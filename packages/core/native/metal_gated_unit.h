// The gated unit silu(gate) · up of feed-forward layers: what `swiglu` computes of two products, in f32, rounded once.
#pragma once
#include "metal_kernel.h"

namespace mlxts {

template <typename T>
METAL_FUNC T gated_unit(T gate, T up) {
  const float4 gated = float4(float(gate));
  return T(times_sigmoid(gated, float4(float(up)), gated).x);
}

}  // namespace mlxts
