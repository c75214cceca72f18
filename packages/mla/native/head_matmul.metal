// A threadgroup computes kRows × kColumns outputs of a head. Tiles of x and of the weight go through threadgroup memory,
// each as it lies in device memory: while one pair of tiles is multiplied, the next is on its way.
#include "head_matmul.params.h"
#include "head_weight.h"
#include "metal_tile.h"

using namespace metal;
using namespace mlxts;

constant constexpr uint kRows = HEAD_MATMUL_ROWS, kColumns = HEAD_MATMUL_COLUMNS, kThreads = HEAD_MATMUL_THREADS;

// Elements of the contracted dimension in a tile.
template <typename E>
constexpr uint depth() {
  return HEAD_MATMUL_DEPTH_BYTES / sizeof(E);
}

// The sums of a simdgroup.
typedef TileSum<32, 32> Sums;

// Adds the products of a tile of x [kRows, depth] and a tile of the weight: [kColumns, depth] if `transpose`, else
// [depth, kColumns].
template <typename E>
METAL_FUNC void multiply(thread Sums& sums, ProductPart part, threadgroup const E* x, threadgroup const E* weight,
                         bool transpose) {
  constexpr uint kDeep = tile_stride<E>(depth<E>()), kWide = tile_stride<E>(kColumns);
  for (uint k = 0; k < depth<E>(); k += 16) {
    TileLeft<E, 32, 16> left;
    load(left, x + part.row * kDeep + k, kDeep);
    MLXTS_UNROLL for (uint s = 0; s < 2; ++s) {
      if (16 * s >= part.columns) continue;
      const uint column = part.column + 16 * s;
      TileRight<E, 16, 16> right;
      if (transpose)
        load_transposed(right, weight + column * kDeep + k, kDeep);
      else
        load(right, weight + k * kWide + column, kWide);
      multiply_add_columns(sums, 16 * s, left, right);
    }
  }
}

template <typename O>
METAL_FUNC void store(thread Sums& sums, ProductPart part, device O* out, constant HeadMatmulParams& p,
                      uint sequence, uint m0, uint rows, uint n0, uint head, uint lane) {
  MLXTS_UNROLL for (uint c = 0; c < 4; ++c) {
    MLXTS_UNROLL for (uint e = 0; e < 2; ++e) {
      const uint n = n0 + part.column + 8 * c + matrix_column(lane) + e;
      if (8 * c >= part.columns || n >= p.n) continue;
      MLXTS_UNROLL for (uint r = 0; r < 4; ++r) {
        const uint m = part.row + 8 * r + matrix_row(lane);
        if (m < rows) out[head_out(p, sequence * p.tokens + m0 + m, head) + n] = O(sums.at(r, c, e));
      }
    }
  }
}

template <typename X, typename W, typename O>
kernel void head_matmul(device const X* x [[buffer(HEAD_MATMUL_X)]],
                        device const W* weight [[buffer(HEAD_MATMUL_WEIGHT)]],
                        device const Index* lengths [[buffer(HEAD_MATMUL_LENGTHS)]],
                        device O* out [[buffer(HEAD_MATMUL_OUT)]],
                        constant HeadMatmulParams& p [[buffer(HEAD_MATMUL_PARAMS)]],
                        threadgroup uchar* memory [[threadgroup(0)]], uint3 group [[threadgroup_position_in_grid]],
                        uint index [[thread_index_in_threadgroup]], uint lane [[thread_index_in_simdgroup]],
                        uint simdgroup [[simdgroup_index_in_threadgroup]]) {
  // Products of two numbers of one dtype are exact in float; where the dtypes differ, float holds both.
  using E = conditional_t<is_same_v<X, W>, X, float>;
  constexpr uint kDepth = depth<E>(), kDeep = tile_stride<E>(kDepth), kWide = tile_stride<E>(kColumns);
  const HeadMatmulScratch scratch = scratch_of(memory, p);
  const uint m0 = group.y * kRows, n0 = group.x * kColumns, head = group.z % p.heads, sequence = group.z / p.heads;
  const uint tokens = valid_tokens(p, {lengths, (p.present & HEAD_MATMUL_HAS_LENGTHS) != 0}, sequence);
  // One answer for the whole threadgroup, even if the length changes meanwhile.
  const uint rows = threadgroup_first(uint2(m0 < tokens ? tokens - m0 : 0, 0), scratch.rows, index).x;
  const uint columns = p.n - n0;
  if (rows == 0) return;
  const ProductPart part = product_part<kRows, kColumns, 32, 32>(simdgroup, rows, columns);
  x += sequence_x(p, sequence, m0, head);
  weight += head_weight(p, head, 0);
  Sums sums;
  fill(sums, 0.0f);

  TileCopy<X, E, kRows, kDepth, kThreads> x_copy;
  TileCopy<W, E, kColumns, kDepth, kThreads> nk_copy;  // of a weight [n, k]
  TileCopy<W, E, kDepth, kColumns, kThreads> kn_copy;  // of a weight [k, n]
  threadgroup E* x_tiles = (threadgroup E*)scratch.x;
  threadgroup E* weight_tiles = (threadgroup E*)scratch.weight;
  const uint x_tile = kRows * kDeep, weight_tile = p.transpose ? kColumns * kDeep : kDepth * kWide;
  const uint turns = (p.k + kDepth - 1) / kDepth;
  for (uint turn = 0; turn <= turns; ++turn) {
    // The tiles of this turn begin their way, those of the turn before are multiplied, then these arrive.
    const uint k = turn * kDepth, here = turn % 2, before = 1 - here;
    if (turn < turns) {
      x_copy.start(x + k, ulong(p.xHeads) * p.xDim, rows, p.k - k, index);
      if (p.transpose)
        nk_copy.start(weight + ulong(n0) * p.rank + k, p.rank, columns, p.k - k, index);
      else
        kn_copy.start(weight + ulong(k) * p.rank + n0, p.rank, p.k - k, columns, index);
    }
    if (turn > 0) multiply(sums, part, x_tiles + before * x_tile, weight_tiles + before * weight_tile, p.transpose);
    if (turn == turns) break;
    x_copy.finish(x_tiles + here * x_tile, index);
    if (p.transpose)
      nk_copy.finish(weight_tiles + here * weight_tile, index);
    else
      kn_copy.finish(weight_tiles + here * weight_tile, index);
    threadgroup_barrier(mem_flags::mem_threadgroup);
  }
  store(sums, part, out, p, sequence, m0, rows, n0, head, lane);
}

#define HEAD_MATMUL(name, X, W, O) \
  template [[host_name("head_matmul_" name)]] [[kernel]] decltype(head_matmul<X, W, O>) head_matmul<X, W, O>;
#define HEAD_MATMUL_KERNELS(w, W)                   \
  HEAD_MATMUL("f32_" w "_f32", float, W, float)    \
  HEAD_MATMUL("f16_" w "_f32", half, W, float)     \
  HEAD_MATMUL("bf16_" w "_f32", bfloat, W, float)  \
  HEAD_MATMUL("f32_" w "_f16", float, W, half)     \
  HEAD_MATMUL("f16_" w "_f16", half, W, half)      \
  HEAD_MATMUL("f32_" w "_bf16", float, W, bfloat)  \
  HEAD_MATMUL("bf16_" w "_bf16", bfloat, W, bfloat)
HEAD_MATMUL_KERNELS("f32", float)
HEAD_MATMUL_KERNELS("f16", half)
HEAD_MATMUL_KERNELS("bf16", bfloat)
