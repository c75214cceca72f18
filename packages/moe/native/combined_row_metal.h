// What the experts of a token gave, added up, on a GPU. moe_combine and moe_combine_rms_norm have the same bits.
#pragma once
#include "metal_norm_row.h"
#include "slot_rows.h"

namespace mlxts {

// A token's row. `shared` and `residual` are read only where they are there.
template <typename T>
struct CombinedRow {
  device const T* y;
  device const float* weights;
  SlotRows slots;
  device const T *shared, *residual;  // [dim]
  bool has_shared, has_residual;
  float gate;  // of the shared row
  uint first;  // the token's first pair
  uint topK, dim;

  // Four columns from `i` on, of which `count` are there.
  METAL_FUNC float4 operator()(uint i, uint count) const {
    float4 sum = float4(0.0f);
    for (uint pair = first; pair < first + topK; ++pair)
      sum = fma(load_some(y + ulong(slots.row(pair)) * dim + i, count), float4(weights[pair]), sum);
    if (has_shared) sum = fma(load_some(shared + i, count), float4(gate), sum);
    if (has_residual) sum += load_some(residual + i, count);
    return sum;
  }

  // Reports the first pair that the order does not have, if one of this token is missing.
  METAL_FUNC bool right(device MlxtsFault* fault, uint code) const {
    for (uint pair = first; pair < first + topK; ++pair) {
      if (slots.right(pair)) continue;
      if (claim_fault(fault)) {
        uint missing = 0;
        while (missing < pair && slots.right(missing)) ++missing;
        write_fault(fault, code, missing);
      }
      return false;
    }
    return true;
  }
};

}  // namespace mlxts
