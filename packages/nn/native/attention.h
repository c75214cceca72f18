// What the attention kernels share: who sees what, the online softmax of a row, and how a cache is cut into pieces.
#pragma once
#include "cpu_kernel.h"
#include "matrix_rows.h"

namespace mlxts {

inline constexpr size_t kBlockKeys = 64, kMaxPieces = 16, kMinPieceKeys = 128;
// Rows of a softmax at most, in whole vectors.
inline constexpr int kSoftmaxRows = kLanes > 8 ? kLanes : 8;

// Rows of a piece of a cache with `length` valid rows.
inline size_t piece_keys(size_t length) {
  const size_t even = (length + kMaxPieces * kBlockKeys - 1) / (kMaxPieces * kBlockKeys) * kBlockKeys;
  return even < kMinPieceKeys ? kMinPieceKeys : even;
}

// The codes are the kernel's own, for a length out of range and for one less than the new rows.
template <uint32_t OutOfRange, uint32_t TooFew, typename P>
int32_t check_length(const Launch& l, const P& p, uint32_t length, size_t b) {
  // A negative length is a large u32.
  if (length > p.capacity) return l.fail(OutOfRange, length, uint32_t(b));
  if (p.causal && length < p.tokens) return l.fail(TooFew, length, uint32_t(b));
  return 0;
}

// All lengths are looked at by every call, so that the first wrong one is reported whichever thread finds it.
template <uint32_t OutOfRange, uint32_t TooFew, typename P>
int32_t check_lengths(const Launch& l, const P& p, const Indices& lengths) {
  for (uint32_t b = 0; b < p.batch; ++b)
    if (const int32_t failed = check_length<OutOfRange, TooFew>(l, p, uint32_t(lengths.read(b)), b)) return failed;
  return 0;
}

// The running maximum and denominator of a query row.
struct Softmax {
  float max = -INFINITY, sum = 0;
};

// For up to kSoftmaxRows rows of scores: the first counts[r] scores of row r become exp(scale · score − max), with
// zeros up to the next whole vector, and factors[r] is what earlier sums of the row are to be multiplied by. Scores
// from counts[r] on are not used. Rows are taken together so that their chains of reductions overlap.
MLXTS_INLINE void softmax_rows(float* scores, int rows, const int* counts, float scale, Softmax* states,
                               float (&factors)[kSoftmaxRows]) {
  const vi32 lane = lane_index();
  const vf32 low = splat(-INFINITY);
  float bases[kSoftmaxRows];
  for (int r = 0; r < rows; ++r) {
    float* row = scores + r * kBlockKeys;
    vf32 top = low;
    for (int i = 0; i < counts[r]; i += kLanes) {
      const vf32 x = select(lane < splat_i32(counts[r] - i), load(row + i) * splat(scale), low);
      top = max(top, x);
      store(row + i, x);
    }
    const float highest = reduce_max(top), before = states[r].max;
    const float now = highest > before ? highest : before;
    // With nothing but −∞ so far, any base gives exp(−∞) = 0.
    bases[r] = now == -INFINITY ? 0 : now;
    factors[r] = before - bases[r];
    states[r].max = now;
  }
  for (int r = rows; r < kSoftmaxRows; ++r) factors[r] = 0;
  for (int r = 0; r < kSoftmaxRows; r += kLanes) store(factors + r, exp(load(factors + r)));
  for (int r = 0; r < rows; ++r) {
    float* row = scores + r * kBlockKeys;
    vf32 sum = {};
    for (int i = 0; i < counts[r]; i += kLanes) {
      const vf32 weight = exp(load(row + i) - splat(bases[r]));
      sum = sum + weight;
      store(row + i, weight);
    }
    states[r].sum = states[r].sum * factors[r] + reduce_add(sum);
  }
}

}  // namespace mlxts
