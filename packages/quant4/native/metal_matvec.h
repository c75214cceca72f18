// The insides of products with up to eight rows of x. One simdgroup: four rows of W, its lanes along the columns,
// sixteen to a lane at a time. Codes meet x as they are; scale and bias go over eight columns at once. A row's sums have
// one order for any number of rows. Kernels know only which output of its threadgroup a thread gets, so cuda_matvec.h
// may divide the work otherwise.
#pragma once
#include "product_metal.h"
#include "quantized_matvec.params.h"

namespace mlxts {

constant constexpr uint kRows = QUANTIZED_MATVEC_SIMDGROUP_ROWS;
constant constexpr uint kColumns = 16;  // of a lane

// Rows of W of a threadgroup.
METAL_FUNC uint threadgroup_rows(uint simdgroups) { return simdgroups * kRows; }

METAL_FUNC FewOutput output_of(uint lane, uint simdgroup) { return {lane / kRows, simdgroup * kRows + lane % kRows}; }

// Lane i·kRows + r gets row i of `m` rows of x times row r of W, of which there are `rows` from w on. `M` is 1 or the
// most rows of x.
template <typename X, typename S, int Bits, uint M>
float simdgroup_product(device const X* x, uint m, AffineMatrix<S, Bits> w, uint lane) {
  const uint groups = w.cols / w.groupSize, shift = metal::ctz(w.groupSize), words = w.cols / 32 * Bits;
  uint step[kRows];  // rows that do not exist read the last one
#pragma unroll
  for (uint r = 0; r < kRows; ++r) step[r] = metal::min(r, w.rows - 1);
  float sums[kRows][M];
#pragma unroll
  for (uint r = 0; r < kRows; ++r)
#pragma unroll
    for (uint i = 0; i < M; ++i) sums[r][i] = 0.0f;
  for (uint column = lane * kColumns; column < w.cols; column += kSimd * kColumns) {
    float scale[kRows], offset[kRows];
#pragma unroll
    for (uint r = 0; r < kRows; ++r) {
      const uint at = step[r] * groups + (column >> shift);
      scale[r] = float(w.scales[at]);
      offset[r] = centered<Bits>(scale[r], float(w.biases[at]));
    }
    for (uint c = column; c < column + kColumns; c += 8) {
      Codes codes[kRows];
#pragma unroll
      for (uint r = 0; r < kRows; ++r) codes[r] = Packed<Bits>::eight(w.words + step[r] * words + c / 8 * (Bits / 4));
#pragma unroll
      for (uint i = 0; i < M; ++i) {
        if (i < m) {
          const float4 low = load4(x + i * w.cols + c), high = load4(x + i * w.cols + c + 4);
          const float4 both = low + high;
          const float sum = (both.x + both.y) + (both.z + both.w);
#pragma unroll
          for (uint r = 0; r < kRows; ++r) {
            const float product = metal::dot(float4(codes[r].low), low) + metal::dot(float4(codes[r].high), high);
            sums[r][i] = metal::fma(scale[r], product, metal::fma(offset[r], sum, sums[r][i]));
          }
        }
      }
    }
  }
  float mine = 0.0f;
#pragma unroll
  for (uint i = 0; i < M; ++i) {
    if (i < m) {
#pragma unroll
      for (uint r = 0; r < kRows; ++r) {
        const float total = metal::simd_sum(sums[r][i]);
        if (lane == i * kRows + r) mine = total;
      }
    }
  }
  return mine;
}

// The product for a thread's output, if there is one; w begins with the first row of the threadgroup. All its threads
// call this.
template <typename X, typename S, int Bits>
METAL_FUNC float product_of(device const X* x, uint m, AffineMatrix<S, Bits> w, uint lane, uint simdgroup) {
  const uint row0 = simdgroup * kRows;
  if (row0 >= w.rows) return 0.0f;
  w = rows_from(w, row0);
  return m == 1 ? simdgroup_product<X, S, Bits, 1>(x, m, w, lane)
                : simdgroup_product<X, S, Bits, QUANTIZED_MATVEC_MOST_M>(x, m, w, lane);
}

// The same of two matrices.
template <typename X, typename S, int Bits>
METAL_FUNC TwoProducts products_of(device const X* x, uint m, AffineMatrix<S, Bits> a, AffineMatrix<S, Bits> b,
                                   uint lane, uint simdgroup) {
  return {product_of(x, m, a, lane, simdgroup), product_of(x, m, b, lane, simdgroup)};
}

}  // namespace mlxts
