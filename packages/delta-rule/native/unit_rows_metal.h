// Rows that are divided by max(√(Σx² + eps), normFloor).
#pragma once
#include "metal_kernel.h"

namespace mlxts {

struct RowNorm {
  float eps, normFloor;
};

// What a row with these squares is multiplied by.
METAL_FUNC float inverse_norm(float squares, RowNorm n) {
  const float norm = metal::precise::sqrt(squares + n.eps);
  return 1.0f / (norm < n.normFloor ? n.normFloor : norm);
}

}  // namespace mlxts
