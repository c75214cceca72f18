// What the attention kernels share: who sees what, the online softmax of a row, and how a cache is cut into pieces.
#pragma once
#include "cpu_kernel.h"
#include "stream.h"

namespace mlxts {

inline constexpr size_t kBlockKeys = 64, kMaxPieces = 16, kMinPieceKeys = 128;

// Rows of a piece of a cache with `length` valid rows.
inline size_t piece_keys(size_t length) {
  const size_t even = (length + kMaxPieces * kBlockKeys - 1) / (kMaxPieces * kBlockKeys) * kBlockKeys;
  return even < kMinPieceKeys ? kMinPieceKeys : even;
}

// All lengths are looked at by every call, so that the first wrong one is reported whichever thread finds it.
template <typename P>
int32_t check_lengths(const Launch& l, const P& p, const int32_t* lengths) {
  for (uint32_t b = 0; b < p.batch; ++b) {
    if (lengths[b] < 0 || uint32_t(lengths[b]) > p.capacity)
      return l.fail("`lengths` must be from 0 to %u, got %d at sequence %u", p.capacity, lengths[b], b);
    if (p.causal && uint32_t(lengths[b]) < p.tokens)
      return l.fail("`lengths` must be at least the %u new rows, got %d at sequence %u", p.tokens, lengths[b], b);
  }
  return 0;
}

// The running maximum and denominator of a query row.
struct Softmax {
  float max = -INFINITY, sum = 0;
};

// Turns the first n scores into exp(scale · score − max), with zeros up to the next whole vector, and returns the
// factor for what was summed before. Scores from n on are not used.
MLXTS_INLINE float softmax_row(float* scores, int n, float scale, Softmax& state) {
  vi32 lane;
  for (int i = 0; i < kLanes; ++i) lane[i] = i;
  const vf32 low = splat(-INFINITY);
  vf32 top = low;
  for (int i = 0; i < n; i += kLanes)
    top = max(top, select(lane < splat_i32(n - i), load(scores + i) * splat(scale), low));
  const float highest = reduce_max(top);
  const float now = highest > state.max ? highest : state.max;
  // With nothing but −∞ so far, any base gives exp(−∞) = 0.
  const float base = now == -INFINITY ? 0 : now;
  vf32 sum = {};
  for (int i = 0; i < n; i += kLanes) {
    const vf32 x = select(lane < splat_i32(n - i), load(scores + i) * splat(scale), low);
    const vf32 weight = exp(x - splat(base));
    sum = sum + weight;
    store(scores + i, weight);
  }
  const float before = now > state.max ? exp(splat(state.max - base))[0] : 1;
  state.sum = state.sum * before + reduce_add(sum);
  state.max = now;
  return before;
}

}  // namespace mlxts
