// A threadgroup computes kRows × kColumns outputs. Tiles of x and of the weight go through threadgroup memory, each as
// it lies in device memory: while one pair of tiles is multiplied, the next is on its way.
#include "matmul.params.h"
#include "metal_kernel.h"
#include "metal_tile.h"

using namespace metal;
using namespace mlxts;

constant constexpr uint kRows = MATMUL_ROWS, kColumns = MATMUL_COLUMNS, kThreads = MATMUL_THREADS;
// Of a simdgroup.
constant constexpr uint kPartRows = MATMUL_PART_ROWS, kPartColumns = MATMUL_PART_COLUMNS;
typedef TileSum<kPartRows, kPartColumns> Sums;

// Elements of the contracted dimension in a tile.
template <typename E>
constexpr uint depth() {
  return MATMUL_DEPTH_BYTES / sizeof(E);
}

// Adds the products of rows of a tile of x [kRows, depth] and of columns of a tile of the weight: [kColumns, depth] if
// Transpose, else [depth, kColumns].
template <uint Columns, bool Transpose, typename E>
METAL_FUNC void multiply(thread Sums& sums, ProductPart part, threadgroup const E* x, threadgroup const E* weight) {
  constexpr uint kDeep = tile_stride<E>(depth<E>()), kWide = tile_stride<E>(kColumns);
  x += part.row * kDeep;
  weight += part.column * (Transpose ? kDeep : 1);
  for (uint k = 0; k < depth<E>(); k += 16) {
    TileLeft<E, kPartRows, 16> left;
    TileRight<E, 16, Columns> right;
    load(left, x + k, kDeep);
    if (Transpose)
      load_transposed(right, weight + k, kDeep);
    else
      load(right, weight + k * kWide, kWide);
    multiply_add_columns(sums, 0, left, right);
  }
}

// The sums of a simdgroup of the threadgroup whose outputs begin at row m0 and column n0.
template <bool Transpose, typename X, typename W>
METAL_FUNC void add_products(thread Sums& sums, ProductPart part, device const X* x, device const W* weight,
                             MatmulScratch scratch, constant MatmulParams& p, uint m0, uint n0, uint index) {
  // Products of two numbers of one dtype are exact in float; where the dtypes differ, float holds both.
  using E = conditional_t<is_same_v<X, W>, X, float>;
  constexpr uint kDepth = depth<E>();
  constexpr uint kTileRows = Transpose ? kColumns : kDepth, kTileColumns = Transpose ? kDepth : kColumns;
  constexpr uint kXTile = kRows * tile_stride<E>(kDepth), kWeightTile = kTileRows * tile_stride<E>(kTileColumns);
  TileCopy<X, E, kRows, kDepth, kThreads> x_copy;
  TileCopy<W, E, kTileRows, kTileColumns, kThreads> weight_copy;
  threadgroup E* x_tiles = (threadgroup E*)scratch.x;
  threadgroup E* weight_tiles = (threadgroup E*)scratch.weight;
  const uint columns = p.n - n0;
  x += ulong(m0) * p.k;
  weight += Transpose ? ulong(n0) * p.k : n0;
  for (uint k = 0; k < p.k + kDepth; k += kDepth) {
    // The tiles of this turn begin their way, those of the turn before are multiplied, then these arrive.
    const uint here = k / kDepth % 2, before = 1 - here, left = p.k - k;
    threadgroup E* x_tile = x_tiles + here * kXTile;
    threadgroup E* weight_tile = weight_tiles + here * kWeightTile;
    if (k < p.k) {
      x_copy.start(x_tile, x + k, p.k, p.m - m0, left, index);
      if (Transpose)
        weight_copy.start(weight_tile, weight + k, p.k, columns, left, index);
      else
        weight_copy.start(weight_tile, weight + ulong(k) * p.n, p.n, left, columns, index);
    }
    if (k > 0 && part.columns == kPartColumns)
      multiply<kPartColumns, Transpose>(sums, part, x_tiles + before * kXTile, weight_tiles + before * kWeightTile);
    else if (k > 0 && part.columns > 0)
      multiply<kPartColumns / 2, Transpose>(sums, part, x_tiles + before * kXTile, weight_tiles + before * kWeightTile);
    if (k >= p.k) break;
    x_copy.finish(x_tile, index);
    weight_copy.finish(weight_tile, index);
    threadgroup_barrier(mem_flags::mem_threadgroup);
  }
}

// What is added to the outputs of a column.
template <typename X>
struct Bias {
  device const X* bias;
  uint present, f32;

  METAL_FUNC float operator()(uint column) const thread {
    if (!present) return 0.0f;
    return f32 ? ((device const float*)bias)[column] : float(bias[column]);
  }
};

template <typename X, typename W, typename O>
kernel void matmul(device const X* x [[buffer(MATMUL_X)]], device const W* weight [[buffer(MATMUL_WEIGHT)]],
                   device const X* bias [[buffer(MATMUL_BIAS)]], device O* out [[buffer(MATMUL_OUT)]],
                   constant MatmulParams& p [[buffer(MATMUL_PARAMS)]], threadgroup uchar* memory [[threadgroup(0)]],
                   uint2 group [[threadgroup_position_in_grid]], uint index [[thread_index_in_threadgroup]],
                   uint lane [[thread_index_in_simdgroup]], uint simdgroup [[simdgroup_index_in_threadgroup]]) {
  const uint m0 = group.y * kRows, n0 = group.x * kColumns;
  const ProductPart part =
      product_part<kRows, kColumns, kPartRows, kPartColumns>(simdgroup, p.m - m0, p.n - n0);
  Sums sums;
  fill(sums, 0.0f);
  if (p.transpose)
    add_products<true>(sums, part, x, weight, scratch_of(memory, p), p, m0, n0, index);
  else
    add_products<false>(sums, part, x, weight, scratch_of(memory, p), p, m0, n0, index);
  store(sums, part, out, m0, p.m, n0, p.n, lane, Bias<X>{bias, p.present & MATMUL_HAS_BIAS, p.biasF32});
}

#define MATMUL(name, X, W, O) \
  template [[host_name("matmul_" name)]] [[kernel]] decltype(matmul<X, W, O>) matmul<X, W, O>;
#define MATMUL_OUTPUTS(x_w, X, W) \
  MATMUL(x_w "_f32", X, W, float) \
  MATMUL(x_w "_f16", X, W, half)  \
  MATMUL(x_w "_bf16", X, W, bfloat)
#define MATMUL_WEIGHTS(x, X)         \
  MATMUL_OUTPUTS(x "_f32", X, float) \
  MATMUL_OUTPUTS(x "_f16", X, half)  \
  MATMUL_OUTPUTS(x "_bf16", X, bfloat)
MATMUL_WEIGHTS("f32", float)
MATMUL_WEIGHTS("f16", half)
MATMUL_WEIGHTS("bf16", bfloat)
