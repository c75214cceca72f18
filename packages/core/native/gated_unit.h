// The gated unit silu(gate) · up of feed-forward layers: what `swiglu` computes of two products, in f32, rounded once.
#pragma once
#include "simd.h"

namespace mlxts {

// out[i] = silu(gates[i]) · ups[i]; out may be gates or ups.
template <typename T>
void gated_units(const T* gates, const T* ups, T* out, size_t n) {
  for_lanes(
      n,
      [&](size_t i) {
        const vf32 gate = load(gates + i);
        store(out + i, times_sigmoid<T>(gate, load(ups + i), gate));
      },
      [&](size_t i, int count) {
        const vf32 gate = load_partial(gates + i, count);
        store_partial(out + i, times_sigmoid<T>(gate, load_partial(ups + i, count), gate), count);
      });
}

}  // namespace mlxts
