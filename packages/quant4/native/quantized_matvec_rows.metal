// x · W with up to eight rows of x. One threadgroup: 64 columns. Sixteen lanes lie along them, four columns to each,
// and the halves of eight simdgroups take every sixteenth row of W; their sums are added at the end.
#include "affine.h"
#include "quantized_matvec_rows.params.h"

using namespace metal;
using namespace mlxts;

constant constexpr uint kColumns = QUANTIZED_MATVEC_ROWS_TILE_COLS;
constant constexpr uint kSimdgroups = QUANTIZED_MATVEC_ROWS_SIMDGROUPS;
constant constexpr uint kLanes = kColumns / 4;                   // along the columns
constant constexpr uint kStep = kSimdgroups * (kSimd / kLanes);  // rows of W at once
constant constexpr uint kAhead = 4;                              // rows of a lane whose codes are under way

// The sums of this simdgroup in its part of `all`: [m][kSimdgroups][kColumns]. `M` is 1 or the most rows of x; the
// weights are those of the threadgroup's columns, of which this lane has the four from `column` on.
template <typename X, typename S, int Bits, uint M>
void sum_rows(device const X* x, device const uint* weight, device const S* scales, device const S* biases,
              constant QuantizedMatvecRowsParams& p, threadgroup float* all, uint column, bool exists, uint lane,
              uint simdgroup) {
  const uint groups = p.cols / p.groupSize, words = p.cols / 32 * Bits;
  const uint group = column / p.groupSize;
  float4 sums[M];
#pragma unroll
  for (uint m = 0; m < M; ++m) sums[m] = float4(0.0f);
  const uint end = exists ? p.rows : 0;
  for (uint first = simdgroup * (kSimd / kLanes) + lane / kLanes; first < end; first += kStep * kAhead) {
    float4 w[kAhead];
#pragma unroll
    for (uint i = 0; i < kAhead; ++i) {
      const ulong row = min(first + i * kStep, p.rows - 1);
      const float scale = float(scales[row * groups + group]);
      const float offset = centered<Bits>(scale, float(biases[row * groups + group]));
      w[i] = fma(float4(Packed<Bits>::four(weight + row * words, column)), float4(scale), float4(offset));
    }
#pragma unroll
    for (uint i = 0; i < kAhead; ++i) {
      const uint row = first + i * kStep;
      if (row < p.rows) {
#pragma unroll
        for (uint m = 0; m < M; ++m)
          if (m < p.m) sums[m] = fma(float4(float(x[ulong(m) * p.rows + row])), w[i], sums[m]);
      }
    }
  }
#pragma unroll
  for (uint m = 0; m < M; ++m) {
    if (m < p.m) {
      const float4 other = float4(simd_shuffle_xor(sums[m].x, kLanes), simd_shuffle_xor(sums[m].y, kLanes),
                                  simd_shuffle_xor(sums[m].z, kLanes), simd_shuffle_xor(sums[m].w, kLanes));
      if (lane < kLanes) store_tile(all + (m * kSimdgroups + simdgroup) * kColumns + lane * 4, sums[m] + other);
    }
  }
}

template <typename X, typename S, typename O, int Bits>
kernel void quantized_matvec_rows(device const X* x [[buffer(QUANTIZED_MATVEC_ROWS_X)]],
                                  device const uint* weight [[buffer(QUANTIZED_MATVEC_ROWS_WEIGHT)]],
                                  device const S* scales [[buffer(QUANTIZED_MATVEC_ROWS_SCALES)]],
                                  device const S* biases [[buffer(QUANTIZED_MATVEC_ROWS_BIASES)]],
                                  device const uchar* bias [[buffer(QUANTIZED_MATVEC_ROWS_BIAS)]],
                                  device O* out [[buffer(QUANTIZED_MATVEC_ROWS_OUT)]],
                                  constant QuantizedMatvecRowsParams& p [[buffer(QUANTIZED_MATVEC_ROWS_PARAMS)]],
                                  threadgroup uchar* memory [[threadgroup(0)]],
                                  uint3 group [[threadgroup_position_in_grid]],
                                  uint index [[thread_index_in_threadgroup]], uint lane [[thread_index_in_simdgroup]],
                                  uint simdgroup [[simdgroup_index_in_threadgroup]]) {
  const auto scratch = scratch_of(memory, p);
  const Batch batch = batch_at(p, group.z);
  const ulong row = batch.q * p.rows;
  x += batch.x * p.m * p.rows;
  weight += row * (p.cols / 32 * Bits);
  scales += row * (p.cols / p.groupSize);
  biases += row * (p.cols / p.groupSize);
  const uint column0 = group.x * kColumns, column = column0 + lane % kLanes * 4;
  const bool exists = column < p.cols;
  if (p.m == 1)
    sum_rows<X, S, Bits, 1>(x, weight, scales, biases, p, scratch.sums, column, exists, lane, simdgroup);
  else
    sum_rows<X, S, Bits, QUANTIZED_MATVEC_ROWS_MOST_M>(x, weight, scales, biases, p, scratch.sums, column, exists, lane,
                                                       simdgroup);
  threadgroup_barrier(mem_flags::mem_threadgroup);
  out += ulong(group.z) * p.m * p.cols;
  for (uint i = index; i < p.m * kColumns; i += kSimdgroups * kSimd) {
    const uint m = i / kColumns, c = column0 + i % kColumns;
    if (c >= p.cols) continue;
    threadgroup const float* parts = scratch.sums + m * kSimdgroups * kColumns + i % kColumns;
    float sum = parts[0];
#pragma unroll
    for (uint s = 1; s < kSimdgroups; ++s) sum += parts[s * kColumns];
    out[ulong(m) * p.cols + c] = O(sum + linear_bias(bias, p.biasDtype, c));
  }
}

#define MATVEC_ROWS(X, S, O, bits)              \
  template [[host_name(                         \
      "quantized_matvec_rows_" #X "_" #S "_" #O \
      "_b" #bits)]] [[kernel]] decltype(quantized_matvec_rows<X, S, O, bits>) quantized_matvec_rows<X, S, O, bits>;
MLXTS_PRODUCTS(MATVEC_ROWS)
