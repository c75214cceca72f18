// The gated unit of runs of products for kernels that do not know the dtype of out.
#pragma once
#include "gated_unit.h"

namespace mlxts {

using GatedUnit = void (*)(const void* gates, const void* ups, void* out, size_t n);

template <typename T>
void gate_run(const void* gates, const void* ups, void* out, size_t n) {
  gated_units(static_cast<const T*>(gates), static_cast<const T*>(ups), static_cast<T*>(out), n);
}

}  // namespace mlxts
