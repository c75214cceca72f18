// Products for few rows of x: each simdgroup multiplies four rows of the weight by all rows of x, so that the weight is read
// once, 128 neighboring columns at a time. Where that gives too few simdgroups, those of a threadgroup share the rows, and
// each takes every fourth piece of the columns.
#include "matvec.params.h"
#include "metal_kernel.h"

using namespace metal;
using namespace mlxts;

METAL_FUNC float dot4(float4 a, float4 b, float sum) {
  return fma(a.w, b.w, fma(a.z, b.z, fma(a.y, b.y, fma(a.x, b.x, sum))));
}

// For up to M rows of x.
template <uint M, typename X, typename W, typename O>
METAL_FUNC void dot_rows(device const X* x, device const W* weight, device const X* bias, device O* out,
                         constant MatvecParams& p, threadgroup float* partial, uint group, uint lane, uint simdgroup) {
  constexpr uint kRows = MATVEC_SIMDGROUP_COLUMNS, kSimdgroups = MATVEC_SIMDGROUPS;
  const uint splits = kSimdgroups * kRows / p.groupColumns, part = simdgroup % splits;
  const uint first = group * p.groupColumns + simdgroup / splits * kRows;
  if (first >= p.n) return;
  device const W* rows[kRows];
  float sum[kRows][M];
  MLXTS_UNROLL for (uint r = 0; r < kRows; ++r) {
    rows[r] = weight + ulong(min(first + r, p.n - 1)) * p.k;
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
      MLXTS_UNROLL for (uint r = 0; r < kRows; ++r) sum[r][i] = fma(float(rows[r][rest]), v, sum[r][i]);
    }
  }
  // Each lane keeps one of the sums.
  float mine = 0.0f;
  MLXTS_UNROLL for (uint i = 0; i < M; ++i) {
    if (i >= p.m) continue;
    MLXTS_UNROLL for (uint r = 0; r < kRows; ++r) {
      const float total = simd_sum(sum[r][i]);
      if (lane == i * kRows + r) mine = total;
    }
  }
  if (splits > 1) {
    partial[simdgroup * kSimd + lane] = mine;
    threadgroup_barrier(mem_flags::mem_threadgroup);
    if (part > 0) return;
    for (uint other = 1; other < splits; ++other) mine += partial[other * kSimd + lane];
  }
  const uint row = lane / kRows, column = first + lane % kRows;
  if (row >= p.m || column >= p.n) return;
  if (p.present & MATVEC_HAS_BIAS) mine += p.biasF32 ? ((device const float*)bias)[column] : float(bias[column]);
  out[ulong(row) * p.n + column] = O(mine);
}

template <typename X, typename W, typename O>
kernel void matvec(device const X* x [[buffer(MATVEC_X)]], device const W* weight [[buffer(MATVEC_WEIGHT)]],
                   device const X* bias [[buffer(MATVEC_BIAS)]], device O* out [[buffer(MATVEC_OUT)]],
                   constant MatvecParams& p [[buffer(MATVEC_PARAMS)]], threadgroup uchar* memory [[threadgroup(0)]],
                   uint group [[threadgroup_position_in_grid]], uint lane [[thread_index_in_simdgroup]],
                   uint simdgroup [[simdgroup_index_in_threadgroup]]) {
  threadgroup float* partial = scratch_of(memory, p).partial;
  if (p.m == 1)
    dot_rows<1>(x, weight, bias, out, p, partial, group, lane, simdgroup);
  else
    dot_rows<MATVEC_ROWS>(x, weight, bias, out, p, partial, group, lane, simdgroup);
}

#define MATVEC(name, X, W, O) \
  template [[host_name("matvec_" name)]] [[kernel]] decltype(matvec<X, W, O>) matvec<X, W, O>;
#define MATVEC_OUTPUTS(x_w, X, W) \
  MATVEC(x_w "_f32", X, W, float) \
  MATVEC(x_w "_f16", X, W, half)  \
  MATVEC(x_w "_bf16", X, W, bfloat)
#define MATVEC_WEIGHTS(x, X)         \
  MATVEC_OUTPUTS(x "_f32", X, float) \
  MATVEC_OUTPUTS(x "_f16", X, half)  \
  MATVEC_OUTPUTS(x "_bf16", X, bfloat)
MATVEC_WEIGHTS("f32", float)
MATVEC_WEIGHTS("f16", half)
MATVEC_WEIGHTS("bf16", bfloat)
