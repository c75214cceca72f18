// What the experts of a token gave, added up, on a CPU. moe_combine and moe_combine_rms_norm have the same bits.
#pragma once
#include "norm_row.h"
#include "slot_rows.h"

namespace mlxts {

// A token's row; addresses are null where there is nothing to add.
template <typename T>
struct CombinedRow {
  const T* y;
  const float* weights;  // [topK]
  SlotRows slots;
  uint64_t first;  // the token's first pair
  uint32_t topK;
  uint64_t dim;
  const T *shared, *residual;  // [dim]
  vf32 gate;                   // of the shared row

  // The columns from `at` on.
  template <typename Lanes>
  MLXTS_INLINE vf32 operator()(size_t at, Lanes lanes) const {
    vf32 total = {};
    for (uint32_t j = 0; j < topK; ++j)
      total = fma(lanes.load(y + uint64_t(slots.row(first + j)) * dim + at), splat(weights[j]), total);
    if (shared) total = fma(lanes.load(shared + at), gate, total);
    if (residual) total = total + lanes.load(residual + at);
    return total;
  }
};

// All tokens.
template <typename T>
struct CombinedRows {
  const T* y;
  const float* weights;
  SlotRows slots;
  const T *shared, *gates, *residual;
  uint32_t topK;
  uint64_t dim;

  MLXTS_INLINE CombinedRow<T> at(uint64_t token) const {
    const uint64_t row = token * dim, first = token * topK;
    return {y,
            weights + first,
            slots,
            first,
            topK,
            dim,
            shared ? shared + row : nullptr,
            residual ? residual + row : nullptr,
            gates ? sigmoid(splat(to_f32(gates[token]))) : splat(1.0f)};
  }

  // Whether the order has all pairs of a token; the first that it does not have is reported.
  bool right(uint64_t token, const Launch& l, uint32_t fault) const {
    for (uint64_t pair = token * topK; pair < (token + 1) * topK; ++pair)
      if (!slots.right(pair)) {
        l.fail(fault, uint32_t(pair));
        return false;
      }
    return true;
  }
};

}  // namespace mlxts
