// More rows of x. A threadgroup: kM rows of x against kN of W. Rows of x meet the centered codes themselves, which
// every dtype of x holds exactly; scales and biases go over the sums of a group of columns in f32: scale·Σqx + bias·Σx.
// The next tiles are brought meanwhile, so one barrier is enough for a tile.
#include "product_metal.h"
#include "quantized_matmul.params.h"

using namespace metal;
using namespace mlxts;

constant constexpr uint kM = QUANTIZED_MATMUL_TILE_M, kN = QUANTIZED_MATMUL_TILE_ROWS;
constant constexpr uint kThreads = QUANTIZED_MATMUL_THREADS;

// Columns of a tile, all of one group.
template <typename X>
constexpr uint tile_columns() {
  return QUANTIZED_MATMUL_TILE_BYTES / sizeof(X);
}

// Sums over the columns of a group: of products with codes, and a lane's parts of those of x.
struct GroupSums {
  Products products;
  float x[4];
};

METAL_FUNC void clear(thread GroupSums& group) {
  fill(group.products, 0.0f);
  MLXTS_UNROLL for (uint r = 0; r < 4; ++r) group.x[r] = 0.0f;
}

template <typename X>
METAL_FUNC void multiply_tiles(thread GroupSums& group, ProductPart part, threadgroup const X* x,
                               threadgroup const X* codes) {
  constexpr uint kColumns = tile_columns<X>(), kStride = tile_stride<X>(kColumns);
  for (uint k = 0; k < kColumns; k += 16) {
    TileLeft<X, 32, 16> left;
    load(left, x + part.row * kStride + k, kStride);
    add_row_sums(group.x, left);
    MLXTS_UNROLL for (uint s = 0; s < 2; ++s) {
      if (s >= part.strips) continue;
      TileRight<X, 16, 16> right;
      load_transposed(right, codes + (part.column + 16 * s) * kStride + k, kStride);
      multiply_add_columns(group.products, 16 * s, left, right);
    }
  }
}

// products += scale·Σqx + offset·Σx; the next group begins.
METAL_FUNC void finish_group(thread Products& products, thread GroupSums& group, ProductPart part,
                             threadgroup const float* scales, threadgroup const float* offsets, uint lane) {
  float x[4];
  MLXTS_UNROLL for (uint r = 0; r < 4; ++r) x[r] = row_sum(group.x[r]);
  MLXTS_UNROLL for (uint c = 0; c < 4; ++c) {
    if (c / 2 >= part.strips) continue;
    MLXTS_UNROLL for (uint e = 0; e < 2; ++e) {
      const uint row = part.column + 8 * c + matrix_column(lane) + e;
      const float scale = scales[row], offset = offsets[row];
      MLXTS_UNROLL for (uint r = 0; r < 4; ++r) {
        thread float& sum = products.at(r, c, e);
        sum = fma(scale, group.products.at(r, c, e), fma(offset, x[r], sum));
      }
    }
  }
  clear(group);
}

// The products of m rows of x and of the rows of W from row0 on: this simdgroup's part.
template <typename X, typename S, int Bits>
Products multiply(device const X* x, Weights<S, Bits> w, QuantizedMatmulScratch scratch, ProductPart part, uint row0,
                  uint m, uint index) {
  constexpr uint kColumns = tile_columns<X>(), kStride = tile_stride<X>(kColumns);
  constexpr uint kOwn = kN * kColumns / kThreads, kPerRow = kColumns / kOwn;
  constexpr uint kXTile = kM * kStride, kWTile = kN * kStride;
  const uint row = index / kPerRow, column = index % kPerRow * kOwn;  // of the codes that this thread brings
  threadgroup X* xTiles = (threadgroup X*)scratch.xTiles;
  threadgroup X* wTiles = (threadgroup X*)scratch.wTiles;

  TileCopy<X, X, kM, kColumns, kThreads> rows;
  HeldCodes<S, Bits, kOwn> codes;
  Products products;
  GroupSums group;
  fill(products, 0.0f);
  clear(group);
  for (uint next = 0; next <= w.cols; next += kColumns) {
    // The next tiles begin their way, the last ones are multiplied, then these arrive.
    const uint into = next / kColumns % 2, from = 1 - into;
    if (next < w.cols) {
      rows.start(x + next, w.cols, m, kColumns, index);
      codes.start(w, row0 + row, next + column);
    }
    if (next > 0) multiply_tiles(group, part, xTiles + from * kXTile, wTiles + from * kWTile);
    if (next > 0 && next % w.groupSize == 0)
      finish_group(products, group, part, scratch.scales + from * kN, scratch.offsets + from * kN, index % kSimd);
    if (next == w.cols) break;
    rows.finish(xTiles + into * kXTile, index);
    codes.store_codes(wTiles + into * kWTile + row * kStride + column);
    if (column == 0) {
      scratch.scales[into * kN + row] = float(codes.scale);
      scratch.offsets[into * kN + row] = codes.offset();
    }
    threadgroup_barrier(mem_flags::mem_threadgroup);
  }
  return products;
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
  const uint m0 = group.y * kM, row0 = group.x * kN;
  const ProductPart part = product_part(simdgroup, p.m - m0, p.rows - row0);
  const Weights<S, Bits> w = weights_at<Bits>(weight, scales, biases, p, batch.q);
  Products products =
      multiply(x + (batch.x * p.m + m0) * p.cols, w, scratch_of(memory, p), part, row0, p.m - m0, index);
  store(products, part, out + ulong(group.z) * p.m * p.rows, m0, p.m, row0, p.rows, bias, p.biasDtype, lane);
}

#define MATMUL(X, S, O, bits)                          \
  template                                             \
      [[host_name("quantized_matmul_" #X "_" #S "_" #O \
                  "_b" #bits)]] [[kernel]] decltype(quantized_matmul<X, S, O, bits>) quantized_matmul<X, S, O, bits>;
MLXTS_PRODUCTS(MATMUL)
