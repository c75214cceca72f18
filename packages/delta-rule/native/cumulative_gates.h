// The cumulative gates G of a chunk, as the CPU kernels of the chunk pipeline take them: the gates of a chunk's tokens
// summed up from its first one on, each as high + low, where low is 0 if it is not carried.
#pragma once
#include "compensated_sum.h"
#include "simd.h"

namespace mlxts {

// ln(decay) of a vector of gates; a factor of 0: the gate is the decay itself.
MLXTS_INLINE vf32 log_decay(vf32 gates, float factor) {
  if (factor != 0) return gates * splat(factor);
  // A subnormal decay counts as 0: it keeps nothing that a sum of f32 could tell.
  return select(gates < splat(0x1p-126f), splat(-104.0f), select(gates != gates, gates, log(gates)));
}

// G and GLow of a call from one element on, tokens `stride` apart; `low` is null where GLow is absent.
struct CumulativeGateTensors {
  const float* high;
  const float* low;
  size_t stride;

  CumulativeGateTensors from(size_t element) const { return {high + element, low ? low + element : nullptr, stride}; }
};

// G of one chunk and head.
struct CumulativeGates {
  float* high;  // [chunk length], zeros beyond the last token
  float* low;

  // Reads G of n tokens.
  void read(const CumulativeGateTensors& from, size_t n, size_t chunk_length) const {
    memset(high, 0, chunk_length * sizeof(float));
    memset(low, 0, chunk_length * sizeof(float));
    for (size_t i = 0; i < n; ++i) {
      high[i] = from.high[i * from.stride];
      if (from.low) low[i] = from.low[i * from.stride];
    }
  }
  // Sums up ln(decay) of n gates that lie `stride` apart, 0 for the tokens that `mask` skips.
  void sum_up(const float* g, size_t stride, size_t n, size_t chunk_length, float factor, const uint8_t* mask,
              bool carries_low) const {
    read({g, nullptr, stride}, n, chunk_length);
    if (factor != 1)
      for (size_t i = 0; i < n; i += kLanes) store(high + i, log_decay(load(high + i), factor));
    if (mask)
      for (size_t i = 0; i < n; ++i)
        if (!mask[i]) high[i] = 0;
    CompensatedSum<float> sum = {};
    for (size_t i = 0; i < n; ++i) {
      sum.add(high[i]);
      high[i] = sum.high;
      if (carries_low) low[i] = sum.low;
    }
  }
  // G_i − G_j for a vector of j.
  MLXTS_INLINE vf32 difference(size_t i, size_t j) const {
    return (splat(high[i]) - load(high + j)) + (splat(low[i]) - load(low + j));
  }
  MLXTS_INLINE float decay(size_t i) const { return (exp(splat(high[i])) * (splat(1.0f) + splat(low[i])))[0]; }
  // exp(G_i) of n tokens, up to a whole vector.
  void decays(float* to, size_t n) const {
    for (size_t i = 0; i < n; i += kLanes) store(to + i, exp(load(high + i)) * (splat(1.0f) + load(low + i)));
  }
  // exp(G_last − G_i) of all tokens, up to a whole vector.
  void decays_to(size_t last, float* to) const {
    for (size_t i = 0; i <= last; i += kLanes) store(to + i, exp(difference(last, i)));
  }
};

}  // namespace mlxts
