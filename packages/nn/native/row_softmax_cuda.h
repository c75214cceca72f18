// Softmax of attention over many tiles of 16-bit keys, whose sums of values are seldom scaled.
#pragma once
#include "metal_attention.h"

namespace mlxts {

// Sums over rows of weights, of which a lane adds up its own. In the matrix unit, as RowSums, they would wait for the
// products of warpgroups.
template <typename E, uint Rows>
struct OwnSums {
  float parts[Rows / 8];

  METAL_FUNC float total(uint r) const { return row_sum(parts[r]); }
};
template <typename E, uint Rows>
METAL_FUNC void clear(thread OwnSums<E, Rows>& sums) {
  MLXTS_UNROLL for (uint r = 0; r < Rows / 8; ++r) sums.parts[r] = 0.0f;
}
template <typename E, uint Rows>
METAL_FUNC void scale_row(thread OwnSums<E, Rows>& sums, uint r, float factor) {
  sums.parts[r] *= factor;
}
template <typename E, uint Rows>
METAL_FUNC void scale_row(thread RowSums<E, Rows>& sums, uint r, float factor) {
  MLXTS_UNROLL for (uint e = 0; e < 2; ++e) sums.blocks[r / 2][r % 2 * 2 + e] *= factor;
}
template <typename E, uint Rows, uint Keys>
METAL_FUNC void add_row_sums(thread OwnSums<E, Rows>& sums, thread const TileLeft<E, Rows, Keys>& weights) {
  MLXTS_UNROLL for (uint r = 0; r < Rows / 8; ++r) {
    MLXTS_UNROLL for (uint c = 0; c < Keys / 8; ++c) sums.parts[r] += weights.at(r, c, 0) + weights.at(r, c, 1);
  }
}

// As softmax, with powers of 2 as the GPU has them. `maxima` are what weights refer to; only a score that is a factor
// of kSlack above it makes a row refer to another one, so that sums are seldom scaled. Denominators are sums of the
// rounded weights.
template <typename E, uint Rows, uint Columns, typename Sums>
struct RowSoftmax {
  typedef AttentionRows<Rows, Columns> Attended;
  static constant constexpr float kMost = Power<E>::kMost, kSlack = metal::is_same_v<E, half> ? 1.0f : 8.0f;
  Sums denominators;
  float scale;
  // Some references are so large, or none yet, that their product with `scale` is rounded to less than a score has.
  bool large = true;

  // Makes rows refer to the highest scores; what earlier sums are to be multiplied by.
  METAL_FUNC void refer_to(thread const float (&highest)[Rows / 8], thread Attended& rows,
                           thread float (&factors)[Rows / 8]) {
    bool some = false;
    MLXTS_UNROLL for (uint r = 0; r < Rows / 8; ++r) {
      const float before = rows.maxima[r], now = metal::max(before, row_max(highest[r]));
      factors[r] = machine::exp2_fast((before - now) * scale);
      rows.maxima[r] = now;
      some = some || !(metal::abs(now * scale) < 65536.0f);
      scale_row(denominators, r, factors[r]);
    }
    large = metal::simd_any(some);
  }
  // Whether rows must refer to higher scores.
  template <uint Keys>
  METAL_FUNC bool higher(thread const TileSum<Rows, Keys>& scores, thread const Attended& rows,
                         thread float (&highest)[Rows / 8]) const {
    bool higher = false;
    MLXTS_UNROLL for (uint r = 0; r < Rows / 8; ++r) {
      highest[r] = scores.at(r, 0, 0);
      MLXTS_UNROLL for (uint i = 1; i < Keys / 4; ++i) highest[r] = metal::max(highest[r], scores.at(r, i / 2, i % 2));
      higher = higher || (highest[r] - rows.maxima[r]) * scale > kSlack;
    }
    return metal::simd_any(higher);
  }
  template <uint Keys>
  METAL_FUNC TileLeft<E, Rows, Keys> powers(thread TileSum<Rows, Keys>& scores, thread const Attended& rows) {
    float offsets[Rows / 8];
    MLXTS_UNROLL for (uint r = 0; r < Rows / 8; ++r) offsets[r] = metal::fma(-rows.maxima[r], scale, kMost);
    if (large) {
      MLXTS_UNROLL for (uint r = 0; r < Rows / 8; ++r) {
        MLXTS_UNROLL for (uint i = 0; i < Keys / 4; ++i) scores.at(r, i / 2, i % 2) -= rows.maxima[r];
        offsets[r] = kMost;
      }
    }
    MLXTS_UNROLL for (uint r = 0; r < Rows / 8; ++r) {
      MLXTS_UNROLL for (uint i = 0; i < Keys / 4; ++i) {
        thread float& score = scores.at(r, i / 2, i % 2);
        score = machine::exp2_fast(metal::fma(score, scale, offsets[r]));
      }
    }
    const TileLeft<E, Rows, Keys> weights = as_left<E>(scores);
    add_row_sums(denominators, weights);
    return weights;
  }
  template <uint Keys>
  METAL_FUNC TileLeft<E, Rows, Keys> weights(thread TileSum<Rows, Keys>& scores, thread Attended& rows) {
    float highest[Rows / 8];
    if (higher(scores, rows, highest)) {
      float factors[Rows / 8];
      refer_to(highest, rows, factors);
      scale_rows(rows.sums, factors);
    }
    return powers(scores, rows);
  }
};

// The rows of a simdgroup from `first` on, before the first tile.
template <typename E, uint Rows, uint Columns, typename Sums>
METAL_FUNC void start_rows(thread AttentionRows<Rows, Columns>& rows,
                           thread RowSoftmax<E, Rows, Columns, Sums>& softmax, uint first, float scale) {
  rows.first = first;
  clear(rows);
  softmax.scale = scale * Power<E>::kScale;
  clear(softmax.denominators);
}

}  // namespace mlxts
