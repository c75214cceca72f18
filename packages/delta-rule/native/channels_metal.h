// Cumulative gates where each channel of a key has its own: of four channels.
#pragma once
#include "chunk_metal.h"

namespace mlxts {

METAL_FUNC float4 exp4(float4 x) {
  return float4(metal::precise::exp(x.x), metal::precise::exp(x.y), metal::precise::exp(x.z), metal::precise::exp(x.w));
}

// exp_of_sum of four.
METAL_FUNC float4 exp4_of_sum(float4 high, float4 low) { return exp4(high) * (1.0f + low * (1.0f + 0.5f * low)); }

METAL_FUNC float4 high4(CumulativeGateTensors G, uint row, uint column) {
  return load4(G.high + row * G.stride + column);
}

METAL_FUNC float4 low4(CumulativeGateTensors G, uint row, uint column) {
  return G.carriesLow ? load4(G.low + row * G.stride + column) : float4(0.0f);
}

}  // namespace mlxts
