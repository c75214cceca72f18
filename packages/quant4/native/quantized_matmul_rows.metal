// x · W with more rows of x. A threadgroup: kM rows of x against kN columns, kK rows of W at a time. Scales change
// along the sums here, so x is widened and W decoded to f32, which is exact. The next tiles are brought meanwhile, so
// one barrier is enough for a tile.
#include "product_metal.h"
#include "quantized_matmul_rows.params.h"

using namespace metal;
using namespace mlxts;

constant constexpr uint kM = QUANTIZED_MATMUL_ROWS_TILE_M, kN = QUANTIZED_MATMUL_ROWS_TILE_COLS;
constant constexpr uint kK = QUANTIZED_MATMUL_ROWS_TILE_ROWS, kThreads = QUANTIZED_MATMUL_ROWS_THREADS;
constant constexpr uint kXStride = tile_stride<float>(kK), kXTile = kM * kXStride;
constant constexpr uint kWStride = tile_stride<float>(kN), kWTile = kK * kWStride;

// Of a simdgroup.
constant constexpr uint kPartM = QUANTIZED_MATMUL_ROWS_PART_M, kPartN = QUANTIZED_MATMUL_ROWS_PART_COLS;
typedef TileSum<kPartM, kPartN> Products;

template <uint Columns>
METAL_FUNC void multiply_tiles(thread Products& products, threadgroup const float* x, threadgroup const float* w) {
  for (uint k = 0; k < kK; k += 16) {
    TileLeft<float, kPartM, 16> left;
    TileRight<float, 16, Columns> right;
    load(left, x + k, kXStride);
    load(right, w + k * kWStride, kWStride);
    multiply_add_columns(products, 0, left, right);
  }
}

// The products of m rows of x and of the columns from column0 on: this simdgroup's part.
template <typename X, typename S, int Bits>
Products multiply(device const X* x, AffineMatrix<S, Bits> w, QuantizedMatmulRowsScratch scratch, ProductPart part,
                  uint column0, uint m, uint index) {
  constexpr uint kOwn = kN * kK / kThreads, kPerRow = kN / kOwn;
  const uint row = index / kPerRow, column = index % kPerRow * kOwn;  // of the codes that this thread brings

  TileCopy<X, float, kM, kK, kThreads> rows;
  HeldCodes<S, Bits, kOwn> codes;
  Products products;
  fill(products, 0.0f);
  for (uint next = 0; next < w.rows + kK; next += kK) {
    // The next tiles begin their way, the last ones are multiplied, then these arrive.
    const uint into = next / kK % 2, from = 1 - into;
    if (next < w.rows) {
      rows.start(x + next, w.rows, m, w.rows - next, index);
      codes.start(w, next + row, column0 + column);
    }
    threadgroup const float* xTile = scratch.xTiles + from * kXTile + part.row * kXStride;
    threadgroup const float* wTile = scratch.wTiles + from * kWTile + part.column;
    if (next > 0 && part.columns == kPartN) multiply_tiles<kPartN>(products, xTile, wTile);
    if (next > 0 && part.columns == kPartN / 2) multiply_tiles<kPartN / 2>(products, xTile, wTile);
    if (next >= w.rows) break;
    rows.finish(scratch.xTiles + into * kXTile, index);
    codes.store_weights(scratch.wTiles + into * kWTile + row * kWStride + column);
    threadgroup_barrier(mem_flags::mem_threadgroup);
  }
  return products;
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
  const uint m0 = group.y * kM, column0 = group.x * kN;
  const ProductPart part = product_part<kM, kN, kPartM, kPartN>(simdgroup, p.m - m0, p.cols - column0);
  const AffineMatrix<S, Bits> w = weights_at<Bits>(weight, scales, biases, p, batch.q);
  Products products =
      multiply(x + (batch.x * p.m + m0) * p.rows, w, scratch_of(memory, p), part, column0, p.m - m0, index);
  store(products, part, out + ulong(group.z) * p.m * p.cols, m0, p.m, column0, p.cols, lane,
        LinearBias{bias, p.biasDtype, 0});
}

#define MATMUL_ROWS(X, S, O, bits)              \
  template [[host_name(                         \
      "quantized_matmul_rows_" #X "_" #S "_" #O \
      "_b" #bits)]] [[kernel]] decltype(quantized_matmul_rows<X, S, O, bits>) quantized_matmul_rows<X, S, O, bits>;
MLXTS_PRODUCTS(MATMUL_ROWS)
