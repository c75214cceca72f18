// The bias of a product.
#pragma once
#include "metal_kernel.h"

namespace mlxts {

// What is added to the outputs of a column.
template <typename X>
struct Bias {
  device const X* bias;
  uint present, f32;

  METAL_FUNC float operator()(uint column) const thread {
    if (!present) return 0.0f;
    return f32 ? ((device const float*)bias)[column] : float(bias[column]);
  }
};

}  // namespace mlxts
