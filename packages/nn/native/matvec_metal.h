// Products for few rows of x: each simdgroup multiplies four rows of the weight by all rows of x, so that the weight is read
// once, 128 neighboring columns at a time. Where that gives too few simdgroups, those of a threadgroup share the rows, and
// each takes every fourth piece of the columns.
#pragma once
#include "metal_kernel.h"

namespace mlxts {

constant constexpr uint kMatvecSimdgroups = 4, kMatvecColumns = 4;  // of a threadgroup; of a simdgroup

// Rows of x, outputs in a row, elements of the contracted dimension, outputs of a threadgroup.
struct MatvecSizes {
  uint m, n, k, groupColumns;
};

METAL_FUNC float dot4(float4 a, float4 b, float sum) {
  return metal::fma(a.w, b.w, metal::fma(a.z, b.z, metal::fma(a.y, b.y, metal::fma(a.x, b.x, sum))));
}

// The sum that a lane ends with, if it is that of an output.
struct LaneSum {
  float sum;
  uint row, column;
  bool valid;
};

// The outputs of threadgroup `group`, for up to M rows of x, one in a lane.
template <uint M, typename X, typename W>
METAL_FUNC LaneSum dot_lanes(device const X* x, device const W* weight, MatvecSizes p, threadgroup float* partial,
                             uint group, uint lane, uint simdgroup) {
  constexpr uint kRows = kMatvecColumns, kSimdgroups = kMatvecSimdgroups;
  const uint splits = kSimdgroups * kRows / p.groupColumns, part = simdgroup % splits;
  const uint first = group * p.groupColumns + simdgroup / splits * kRows;
  const LaneSum none = {0.0f, 0, 0, false};
  if (first >= p.n) return none;
  device const W* rows[kRows];
  float sum[kRows][M];
  MLXTS_UNROLL for (uint r = 0; r < kRows; ++r) {
    rows[r] = weight + ulong(metal::min(first + r, p.n - 1)) * p.k;
    MLXTS_UNROLL for (uint i = 0; i < M; ++i) sum[r][i] = 0.0f;
  }
  for (uint k = (part * kSimd + lane) * 4; k + 4 <= p.k; k += splits * kSimd * 4) {
    float4 w[kRows];
    MLXTS_UNROLL for (uint r = 0; r < kRows; ++r) w[r] = load4(rows[r] + k);
    MLXTS_UNROLL for (uint i = 0; i < M; ++i) {
      if (i >= p.m) continue;
      const float4 v = load4(x + ulong(i) * p.k + k);
      MLXTS_UNROLL for (uint r = 0; r < kRows; ++r) sum[r][i] = dot4(w[r], v, sum[r][i]);
    }
  }
  const uint rest = p.k / 4 * 4 + lane;
  if (part == 0 && rest < p.k) {
    MLXTS_UNROLL for (uint i = 0; i < M; ++i) {
      if (i >= p.m) continue;
      const float v = float(x[ulong(i) * p.k + rest]);
      MLXTS_UNROLL for (uint r = 0; r < kRows; ++r) sum[r][i] = metal::fma(float(rows[r][rest]), v, sum[r][i]);
    }
  }
  // Each lane keeps one of the sums.
  float mine = 0.0f;
  MLXTS_UNROLL for (uint i = 0; i < M; ++i) {
    if (i >= p.m) continue;
    MLXTS_UNROLL for (uint r = 0; r < kRows; ++r) {
      const float total = metal::simd_sum(sum[r][i]);
      if (lane == i * kRows + r) mine = total;
    }
  }
  if (splits > 1) {
    partial[simdgroup * kSimd + lane] = mine;
    threadgroup_barrier(metal::mem_flags::mem_threadgroup);
    if (part > 0) return none;
    for (uint other = 1; other < splits; ++other) mine += partial[other * kSimd + lane];
  }
  const uint row = lane / kRows, column = first + lane % kRows;
  return {mine, row, column, row < p.m && column < p.n};
}

// Stores the outputs of threadgroup `group`, for up to M rows of x; added(column) is added to those of a column.
template <uint M, typename X, typename W, typename O, typename Added>
METAL_FUNC void dot_rows(device const X* x, device const W* weight, Added added, device O* out, MatvecSizes p,
                         threadgroup float* partial, uint group, uint lane, uint simdgroup) {
  const LaneSum dot = dot_lanes<M>(x, weight, p, partial, group, lane, simdgroup);
  if (dot.valid) out[ulong(dot.row) * p.n + dot.column] = O(dot.sum + added(dot.column));
}

}  // namespace mlxts
