// More rows of x. One threadgroup: 32 rows of x against 64 of W. A simdgroup has 16 rows of W for itself: it decodes 32
// of their columns to f32, and they meet the tile of x, which all four bring, as 8 × 8 matrices. The next tile of x is
// brought meanwhile, so one barrier is enough for 32 columns.
#include <metal_simdgroup_matrix>

#include "affine.h"
#include "quantized_matmul.params.h"

using namespace metal;
using namespace mlxts;

constant constexpr uint kM = QUANTIZED_MATMUL_TILE_M;
constant constexpr uint kColumns = QUANTIZED_MATMUL_TILE_COLS;
constant constexpr uint kStride = QUANTIZED_MATMUL_TILE_STRIDE;
constant constexpr uint kRows = 16;                         // of W of a simdgroup
constant constexpr uint kOutStride = kRows * kStride / kM;  // results fill a simdgroup's part of the tile of W
constant constexpr uint kTile = kM * kStride;

// This thread's eight of a tile of x; 0 for rows that do not exist.
template <typename X>
METAL_FUNC void bring(device const X* x, bool exists, threadgroup float* to) {
  store_tile(to, exists ? load4(x) : float4(0.0f));
  store_tile(to + 4, exists ? load4(x + 4) : float4(0.0f));
}

// The products of a tile of x and of this simdgroup's rows of W.
struct Sums {
  simdgroup_float8x8 blocks[kM / 8][kRows / 8];
};

METAL_FUNC void clear(thread Sums& sums) {
#pragma unroll
  for (uint i = 0; i < kM / 8; ++i)
#pragma unroll
    for (uint j = 0; j < kRows / 8; ++j) sums.blocks[i][j] = make_filled_simdgroup_matrix<float, 8, 8>(0.0f);
}

// sums += x · wᵀ over the columns of a tile; the first m rows of x.
METAL_FUNC void multiply_tiles(thread Sums& sums, threadgroup const float* x, threadgroup const float* w, uint m) {
  for (uint k = 0; k < kColumns; k += 8) {
    simdgroup_float8x8 a, b[kRows / 8];
#pragma unroll
    for (uint j = 0; j < kRows / 8; ++j) simdgroup_load(b[j], w + j * 8 * kStride + k, kStride, ulong2(0), true);
#pragma unroll
    for (uint i = 0; i < kM / 8; ++i) {
      if (i * 8 < m) {
        simdgroup_load(a, x + i * 8 * kStride + k, kStride);
#pragma unroll
        for (uint j = 0; j < kRows / 8; ++j)
          simdgroup_multiply_accumulate(sums.blocks[i][j], a, b[j], sums.blocks[i][j]);
      }
    }
  }
}

METAL_FUNC void store_sums(thread Sums& sums, threadgroup float* to, uint m) {
#pragma unroll
  for (uint i = 0; i < kM / 8; ++i) {
    if (i * 8 < m) {
#pragma unroll
      for (uint j = 0; j < kRows / 8; ++j)
        simdgroup_store(sums.blocks[i][j], to + i * 8 * kOutStride + j * 8, kOutStride);
    }
  }
  simdgroup_barrier(mem_flags::mem_threadgroup);
}

// The products of this simdgroup's rows of W, from row0 on, in its part of the tile of W: [m][kOutStride]. x and the
// weights are those of the batch index.
template <typename X, typename S, int Bits>
threadgroup float* multiply(device const X* x, device const uint* weight, device const S* scales,
                            device const S* biases, constant QuantizedMatmulParams& p, QuantizedMatmulScratch scratch,
                            uint row0, uint m, uint index) {
  const uint lane = index % kSimd;
  threadgroup float* w = scratch.wTile + index / kSimd * kRows * kStride;

  const uint xRow = index / 4, xColumn = index % 4 * 8;
  const bool exists = xRow < m;
  x += ulong(xRow) * p.cols + xColumn;
  threadgroup float* xTo = scratch.xTiles + xRow * kStride + xColumn;

  // Rows of W that do not exist are the last one; nobody stores what they give.
  const uint shift = ctz(p.groupSize), column = lane % 2 * 16;
  const ulong row = min(row0 + lane / 2, p.rows - 1);
  weight += row * (p.cols / 32 * Bits) + column / 8 * (Bits / 4);
  scales += row * (p.cols >> shift);
  biases += row * (p.cols >> shift);
  threadgroup float* wTo = w + lane / 2 * kStride + column;

  Sums sums;
  clear(sums);

  bring(x, exists, xTo);
  threadgroup_barrier(mem_flags::mem_threadgroup);
  for (uint c = 0; c < p.cols; c += kColumns) {
    const uint current = c / kColumns % 2 * kTile;
    if (c + kColumns < p.cols) bring(x + c + kColumns, exists, xTo + (kTile - current));
    if (row0 < p.rows) {
      const uint at = (c + column) >> shift;
      const float scale = float(scales[at]), offset = centered<Bits>(scale, float(biases[at]));
      for (uint i = 0; i < 2; ++i) {
        const Codes codes = Packed<Bits>::eight(weight + (c / 8 + i) * (Bits / 4));
        store_tile(wTo + 8 * i, fma(float4(codes.low), float4(scale), float4(offset)));
        store_tile(wTo + 8 * i + 4, fma(float4(codes.high), float4(scale), float4(offset)));
      }
      simdgroup_barrier(mem_flags::mem_threadgroup);
      multiply_tiles(sums, scratch.xTiles + current, w, m);
    }
    threadgroup_barrier(mem_flags::mem_threadgroup);
  }

  // The rows of W are done with: their memory takes the results.
  if (row0 < p.rows) store_sums(sums, w, m);
  return w;
}

template <typename X, typename S, typename O, int Bits>
kernel void quantized_matmul(device const X* x [[buffer(QUANTIZED_MATMUL_X)]],
                             device const uint* weight [[buffer(QUANTIZED_MATMUL_WEIGHT)]],
                             device const S* scales [[buffer(QUANTIZED_MATMUL_SCALES)]],
                             device const S* biases [[buffer(QUANTIZED_MATMUL_BIASES)]],
                             device const uchar* bias [[buffer(QUANTIZED_MATMUL_BIAS)]],
                             device O* out [[buffer(QUANTIZED_MATMUL_OUT)]],
                             constant QuantizedMatmulParams& p [[buffer(QUANTIZED_MATMUL_PARAMS)]],
                             threadgroup uchar* memory [[threadgroup(0)]], uint3 group [[threadgroup_position_in_grid]],
                             uint index [[thread_index_in_threadgroup]], uint lane [[thread_index_in_simdgroup]],
                             uint simdgroup [[simdgroup_index_in_threadgroup]]) {
  const Batch batch = batch_at(p, group.z);
  const uint m0 = group.y * kM, m = min(kM, p.m - m0);
  const uint row0 = group.x * QUANTIZED_MATMUL_TILE_ROWS + simdgroup * kRows;
  const ulong firstRow = batch.q * p.rows, groups = firstRow * (p.cols / p.groupSize);
  threadgroup const float* products =
      multiply<X, S, Bits>(x + (batch.x * p.m + m0) * p.cols, weight + firstRow * (p.cols / 32 * Bits), scales + groups,
                           biases + groups, p, scratch_of(memory, p), row0, m, index);
  const uint row = row0 + lane % kRows;
  if (row >= p.rows) return;
  const float added = linear_bias(bias, p.biasDtype, row);
  out += (ulong(group.z) * p.m + m0) * p.rows + row;
  for (uint i = lane / kRows; i < m; i += kSimd / kRows)
    out[ulong(i) * p.rows] = O(products[i * kOutStride + lane % kRows] + added);
}

#define MATMUL(X, S, O, bits)                          \
  template                                             \
      [[host_name("quantized_matmul_" #X "_" #S "_" #O \
                  "_b" #bits)]] [[kernel]] decltype(quantized_matmul<X, S, O, bits>) quantized_matmul<X, S, O, bits>;
MLXTS_PRODUCTS(MATMUL)
