// The gated unit silu(gate)·up of products that are rounded to the dtype of out, as the op `swiglu` computes it.
#pragma once
#include "decode.h"

namespace mlxts {

using GatedUnit = void (*)(const void* gates, const void* ups, void* out, size_t n);

template <typename T>
void gate_run(const void* gates, const void* ups, void* out, size_t n) {
  const T *gate = static_cast<const T*>(gates), *up = static_cast<const T*>(ups);
  T* to = static_cast<T*>(out);
  for_lanes(
      n,
      [&](size_t i) {
        const vf32 gated = load(gate + i);
        store(to + i, times_sigmoid(gated, load(up + i), gated));
      },
      [&](size_t i, int count) {
        const vf32 gated = load_partial(gate + i, count);
        store_partial(to + i, times_sigmoid(gated, load_partial(up + i, count), gated), count);
      });
}

}  // namespace mlxts
