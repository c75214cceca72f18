// Up to eight rows of x. One simdgroup: four rows of W, its lanes along the columns, sixteen to a lane at a time. Codes
// meet x as they are; scale and bias go over eight columns at once. A row's sums have one order for any number of rows.
#include "affine.h"
#include "quantized_matvec.params.h"

using namespace metal;
using namespace mlxts;

constant constexpr uint kRows = QUANTIZED_MATVEC_SIMDGROUP_ROWS;
constant constexpr uint kColumns = 16;  // of a lane

// Lane m·kRows + r gets row m of x times row row0 + r of W. `M` is 1 or the most rows of x.
template <typename X, typename S, int Bits, uint M>
float product_of(device const X* x, device const uint* weight, device const S* scales, device const S* biases,
                 constant QuantizedMatvecParams& p, uint row0, uint lane) {
  const uint groups = p.cols / p.groupSize, shift = ctz(p.groupSize), words = p.cols / 32 * Bits;
  uint step[kRows];  // rows that do not exist read the last one
#pragma unroll
  for (uint r = 0; r < kRows; ++r) step[r] = min(r, p.rows - 1 - row0);
  float sums[kRows][M];
#pragma unroll
  for (uint r = 0; r < kRows; ++r)
#pragma unroll
    for (uint m = 0; m < M; ++m) sums[r][m] = 0.0f;
  for (uint column = lane * kColumns; column < p.cols; column += kSimd * kColumns) {
    float scale[kRows], offset[kRows];
#pragma unroll
    for (uint r = 0; r < kRows; ++r) {
      const uint at = step[r] * groups + (column >> shift);
      scale[r] = float(scales[at]);
      offset[r] = centered<Bits>(scale[r], float(biases[at]));
    }
    for (uint c = column; c < column + kColumns; c += 8) {
      Codes codes[kRows];
#pragma unroll
      for (uint r = 0; r < kRows; ++r) codes[r] = Packed<Bits>::eight(weight + step[r] * words + c / 8 * (Bits / 4));
#pragma unroll
      for (uint m = 0; m < M; ++m) {
        if (m < p.m) {
          const float4 low = load4(x + m * p.cols + c), high = load4(x + m * p.cols + c + 4);
          const float4 both = low + high;
          const float sum = (both.x + both.y) + (both.z + both.w);
#pragma unroll
          for (uint r = 0; r < kRows; ++r) {
            const float product = dot(float4(codes[r].low), low) + dot(float4(codes[r].high), high);
            sums[r][m] = fma(scale[r], product, fma(offset[r], sum, sums[r][m]));
          }
        }
      }
    }
  }
  float mine = 0.0f;
#pragma unroll
  for (uint m = 0; m < M; ++m) {
    if (m < p.m) {
#pragma unroll
      for (uint r = 0; r < kRows; ++r) {
        const float total = simd_sum(sums[r][m]);
        if (lane == m * kRows + r) mine = total;
      }
    }
  }
  return mine;
}

template <typename X, typename S, typename O, int Bits>
kernel void quantized_matvec(device const X* x [[buffer(QUANTIZED_MATVEC_X)]],
                             device const uint* weight [[buffer(QUANTIZED_MATVEC_WEIGHT)]],
                             device const S* scales [[buffer(QUANTIZED_MATVEC_SCALES)]],
                             device const S* biases [[buffer(QUANTIZED_MATVEC_BIASES)]],
                             device const uchar* bias [[buffer(QUANTIZED_MATVEC_BIAS)]],
                             device O* out [[buffer(QUANTIZED_MATVEC_OUT)]],
                             constant QuantizedMatvecParams& p [[buffer(QUANTIZED_MATVEC_PARAMS)]],
                             uint3 group [[threadgroup_position_in_grid]], uint lane [[thread_index_in_simdgroup]],
                             uint simdgroup [[simdgroup_index_in_threadgroup]],
                             uint simdgroups [[simdgroups_per_threadgroup]]) {
  const uint row0 = (group.x * simdgroups + simdgroup) * kRows;
  if (row0 >= p.rows) return;
  const Batch batch = batch_at(p, group.z);
  const ulong row = batch.q * p.rows + row0;
  x += batch.x * p.m * p.cols;
  weight += row * (p.cols / 32 * Bits);
  scales += row * (p.cols / p.groupSize);
  biases += row * (p.cols / p.groupSize);
  out += ulong(group.z) * p.m * p.rows;
  const float product = p.m == 1
                            ? product_of<X, S, Bits, 1>(x, weight, scales, biases, p, row0, lane)
                            : product_of<X, S, Bits, QUANTIZED_MATVEC_MOST_M>(x, weight, scales, biases, p, row0, lane);
  const uint m = lane / kRows, at = row0 + lane % kRows;
  if (m < p.m && at < p.rows) out[m * p.rows + at] = O(product + linear_bias(bias, p.biasDtype, at));
}

#define MATVEC(X, S, O, bits)                          \
  template                                             \
      [[host_name("quantized_matvec_" #X "_" #S "_" #O \
                  "_b" #bits)]] [[kernel]] decltype(quantized_matvec<X, S, O, bits>) quantized_matvec<X, S, O, bits>;
MLXTS_PRODUCTS(MATVEC)
