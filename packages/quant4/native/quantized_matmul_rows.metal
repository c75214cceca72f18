// x · W with more rows of x. One threadgroup: 32 rows of x against 64 columns, 32 rows of W at a time. All threads
// bring and decode the tiles of the next rows while they multiply those of these, so one barrier is enough for 32 rows.
// A simdgroup has 16 of the columns.
#include <metal_simdgroup_matrix>

#include "affine.h"
#include "quantized_matmul_rows.params.h"

using namespace metal;
using namespace mlxts;

constant constexpr uint kM = QUANTIZED_MATMUL_ROWS_TILE_M;
constant constexpr uint kColumns = QUANTIZED_MATMUL_ROWS_TILE_COLS;
constant constexpr uint kRows = QUANTIZED_MATMUL_ROWS_TILE_ROWS;
constant constexpr uint kXStride = QUANTIZED_MATMUL_ROWS_X_STRIDE;
constant constexpr uint kStride = QUANTIZED_MATMUL_ROWS_STRIDE;
constant constexpr uint kXTile = kM * kXStride;
constant constexpr uint kTile = kRows * kStride;
constant constexpr uint kOwn = 16;  // columns of a simdgroup
constant constexpr uint kOutStride = kOwn + 2;
static_assert(kColumns / kOwn * kM * kOutStride <= 2 * kXTile, "results must fit the tiles of x");

// This thread's eight of a tile of x, from row `row` of W on; 0 for what does not exist.
template <typename X>
METAL_FUNC void bring(device const X* x, bool exists, uint row, uint rows, threadgroup float* to) {
#pragma unroll
  for (uint i = 0; i < 8; ++i) to[i] = exists && row + i < rows ? float(x[row + i]) : 0.0f;
}

// This thread's sixteen of a tile of W, of one row and one group; 0 for what does not exist.
template <typename S, int Bits>
METAL_FUNC void decode(device const uint* words, device const S* scale, device const S* bias, bool exists,
                       threadgroup float* to) {
  if (!exists) {
    for (uint i = 0; i < 16; i += 4) store_tile(to + i, float4(0.0f));
    return;
  }
  const float s = float(*scale), offset = centered<Bits>(s, float(*bias));
  for (uint i = 0; i < 2; ++i) {
    const Codes codes = Packed<Bits>::eight(words + i * (Bits / 4));
    store_tile(to + 8 * i, fma(float4(codes.low), float4(s), float4(offset)));
    store_tile(to + 8 * i + 4, fma(float4(codes.high), float4(s), float4(offset)));
  }
}

// The products of a tile of x and of this simdgroup's columns.
struct Sums {
  simdgroup_float8x8 blocks[kM / 8][kOwn / 8];
};

METAL_FUNC void clear(thread Sums& sums) {
#pragma unroll
  for (uint i = 0; i < kM / 8; ++i)
#pragma unroll
    for (uint j = 0; j < kOwn / 8; ++j) sums.blocks[i][j] = make_filled_simdgroup_matrix<float, 8, 8>(0.0f);
}

// sums += x · w over the rows of a tile of W; the first m rows of x.
METAL_FUNC void multiply_tiles(thread Sums& sums, threadgroup const float* x, threadgroup const float* w, uint m) {
  for (uint k = 0; k < kRows; k += 8) {
    simdgroup_float8x8 a, b[kOwn / 8];
#pragma unroll
    for (uint j = 0; j < kOwn / 8; ++j) simdgroup_load(b[j], w + k * kStride + j * 8, kStride);
#pragma unroll
    for (uint i = 0; i < kM / 8; ++i) {
      if (i * 8 < m) {
        simdgroup_load(a, x + i * 8 * kXStride + k, kXStride);
#pragma unroll
        for (uint j = 0; j < kOwn / 8; ++j)
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
      for (uint j = 0; j < kOwn / 8; ++j)
        simdgroup_store(sums.blocks[i][j], to + i * 8 * kOutStride + j * 8, kOutStride);
    }
  }
  simdgroup_barrier(mem_flags::mem_threadgroup);
}

// The products of this simdgroup's columns in its part of the tiles of x: [m][kOutStride]. x and the weights are those
// of the batch index.
template <typename X, typename S, int Bits>
threadgroup float* multiply(device const X* x, device const uint* weight, device const S* scales,
                            device const S* biases, constant QuantizedMatmulRowsParams& p,
                            QuantizedMatmulRowsScratch scratch, uint column0, uint m, uint index) {
  const uint words = p.cols / 32 * Bits, groups = p.cols / p.groupSize, own = index / kSimd * kOwn;
  const bool idle = column0 + own >= p.cols;

  const uint xRow = index / 4, xColumn = index % 4 * 8;
  x += ulong(xRow) * p.rows;
  threadgroup float* xTo = scratch.xTiles + xRow * kXStride + xColumn;

  const uint wRow = index / 4, column = column0 + index % 4 * 16;
  weight += column / 8 * (Bits / 4);
  scales += column / p.groupSize;
  biases += column / p.groupSize;
  threadgroup float* wTo = scratch.wTiles + wRow * kStride + index % 4 * 16;

  Sums sums;
  clear(sums);

  for (uint next = 0; next < p.rows + kRows; next += kRows) {
    const uint into = next / kRows % 2;
    if (next < p.rows) {
      const uint row = next + wRow;
      bring(x, xRow < m, next + xColumn, p.rows, xTo + into * kXTile);
      decode<S, Bits>(weight + ulong(row) * words, scales + ulong(row) * groups, biases + ulong(row) * groups,
                      row < p.rows && column < p.cols, wTo + into * kTile);
    }
    if (next > 0 && !idle)
      multiply_tiles(sums, scratch.xTiles + (1 - into) * kXTile, scratch.wTiles + (1 - into) * kTile + own, m);
    threadgroup_barrier(mem_flags::mem_threadgroup);
  }

  // The tiles of x are done with: their memory takes the results.
  threadgroup float* results = scratch.xTiles + own * kM / kOwn * kOutStride;
  if (!idle) store_sums(sums, results, m);
  return results;
}

template <typename X, typename S, typename O, int Bits>
kernel void quantized_matmul_rows(device const X* x [[buffer(QUANTIZED_MATMUL_ROWS_X)]],
                                  device const uint* weight [[buffer(QUANTIZED_MATMUL_ROWS_WEIGHT)]],
                                  device const S* scales [[buffer(QUANTIZED_MATMUL_ROWS_SCALES)]],
                                  device const S* biases [[buffer(QUANTIZED_MATMUL_ROWS_BIASES)]],
                                  device const uchar* bias [[buffer(QUANTIZED_MATMUL_ROWS_BIAS)]],
                                  device O* out [[buffer(QUANTIZED_MATMUL_ROWS_OUT)]],
                                  constant QuantizedMatmulRowsParams& p [[buffer(QUANTIZED_MATMUL_ROWS_PARAMS)]],
                                  threadgroup uchar* memory [[threadgroup(0)]],
                                  uint3 group [[threadgroup_position_in_grid]],
                                  uint index [[thread_index_in_threadgroup]], uint lane [[thread_index_in_simdgroup]],
                                  uint simdgroup [[simdgroup_index_in_threadgroup]]) {
  const Batch batch = batch_at(p, group.z);
  const uint m0 = group.y * kM, m = min(kM, p.m - m0), column0 = group.x * kColumns;
  const ulong firstRow = batch.q * p.rows, groups = firstRow * (p.cols / p.groupSize);
  threadgroup const float* products =
      multiply<X, S, Bits>(x + (batch.x * p.m + m0) * p.rows, weight + firstRow * (p.cols / 32 * Bits), scales + groups,
                           biases + groups, p, scratch_of(memory, p), column0, m, index);
  const uint column = column0 + simdgroup * kOwn + lane % kOwn;
  if (column >= p.cols) return;
  const float added = linear_bias(bias, p.biasDtype, column);
  out += (ulong(group.z) * p.m + m0) * p.cols + column;
  for (uint i = lane / kOwn; i < m; i += kSimd / kOwn)
    out[ulong(i) * p.cols] = O(products[i * kOutStride + lane % kOwn] + added);
}

#define MATMUL_ROWS(X, S, O, bits)              \
  template [[host_name(                         \
      "quantized_matmul_rows_" #X "_" #S "_" #O \
      "_b" #bits)]] [[kernel]] decltype(quantized_matmul_rows<X, S, O, bits>) quantized_matmul_rows<X, S, O, bits>;
MLXTS_PRODUCTS(MATMUL_ROWS)
