// A threadgroup computes kRows × kColumns outputs of a head. Tiles of x and of the weight go through threadgroup memory,
// each as it lies in device memory: while one pair of tiles is multiplied, the next is on its way.
#include "head_matmul.params.h"
#include "metal_affine_tile.h"
#include "weight_metal.h"

using namespace metal;
using namespace mlxts;

constant constexpr uint kRows = HEAD_MATMUL_ROWS, kColumns = HEAD_MATMUL_COLUMNS, kThreads = HEAD_MATMUL_THREADS;

// Elements of the contracted dimension in a tile.
template <typename E>
constexpr uint depth() {
  return HEAD_MATMUL_DEPTH_BYTES / sizeof(E);
}

// What tiles are made of. Products of two numbers of one dtype are exact in float; where the dtypes differ, float holds
// both, and weights that codes stand for.
template <typename X, typename W>
struct ElementOf {
  typedef float Type;
};
template <typename X>
struct ElementOf<X, Dense<X>> {
  typedef X Type;
};
template <typename X, typename W>
using Element = typename ElementOf<X, W>::Type;

// A tile of a head's weight on its way: [kColumns, depth] of n × k numbers if transposed, else [depth, kColumns] of k × n.
template <typename W, typename E>
struct WeightCopy;

template <typename T, typename E>
struct WeightCopy<Dense<T>, E> {
  TileCopy<T, E, kColumns, depth<E>(), kThreads> nk;
  TileCopy<T, E, depth<E>(), kColumns, kThreads> kn;

  METAL_FUNC void start(thread const Dense<T>& weight, constant HeadMatmulParams& p, uint n, uint k, uint index) thread {
    if (p.transpose)
      nk.start(weight.first + ulong(n) * p.cols + k, p.cols, p.n - n, p.k - k, index);
    else
      kn.start(weight.first + ulong(k) * p.cols + n, p.cols, p.k - k, p.n - n, index);
  }
  METAL_FUNC void finish(threadgroup E* to, bool transpose, uint index) const thread {
    if (transpose)
      nk.finish(to, index);
    else
      kn.finish(to, index);
  }
};

// Codes are decoded on arrival.
template <typename S, int Bits>
struct WeightCopy<Affine<S, Bits>, float> {
  static constant constexpr uint kDepth = depth<float>(), kOwn = kColumns * kDepth / kThreads;
  HeldCodes<S, Bits, kOwn> codes;

  METAL_FUNC void start(thread const Affine<S, Bits>& weight, constant HeadMatmulParams& p, uint n, uint k,
                        uint index) thread {
    const uint across = (p.transpose ? kDepth : kColumns) / kOwn, row = index / across, column = index % across * kOwn;
    const AffineMatrix<S, Bits> matrix = {weight.words, weight.scales,    weight.biases, p.transpose ? p.n : p.k,
                                          p.cols,       1u << weight.shift};
    codes.start(matrix, (p.transpose ? n : k) + row, (p.transpose ? k : n) + column);
  }
  METAL_FUNC void finish(threadgroup float* to, bool transpose, uint index) const thread {
    const uint across = (transpose ? kDepth : kColumns) / kOwn, row = index / across, column = index % across * kOwn;
    codes.store_weights(to + row * tile_stride<float>(transpose ? kDepth : kColumns) + column);
  }
};

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
                        device const typename W::Word* words [[buffer(HEAD_MATMUL_WEIGHT)]],
                        device const typename W::Scale* scales [[buffer(HEAD_MATMUL_SCALES)]],
                        device const typename W::Scale* biases [[buffer(HEAD_MATMUL_BIASES)]],
                        device const Index* lengths [[buffer(HEAD_MATMUL_LENGTHS)]],
                        device O* out [[buffer(HEAD_MATMUL_OUT)]],
                        constant HeadMatmulParams& p [[buffer(HEAD_MATMUL_PARAMS)]],
                        threadgroup uchar* memory [[threadgroup(0)]], uint3 group [[threadgroup_position_in_grid]],
                        uint index [[thread_index_in_threadgroup]], uint lane [[thread_index_in_simdgroup]],
                        uint simdgroup [[simdgroup_index_in_threadgroup]]) {
  using E = Element<X, W>;
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
  W weight;
  open(weight, words, scales, biases, p, head);
  Sums sums;
  fill(sums, 0.0f);

  TileCopy<X, E, kRows, kDepth, kThreads> x_copy;
  WeightCopy<W, E> weight_copy;
  threadgroup E* x_tiles = (threadgroup E*)scratch.x;
  threadgroup E* weight_tiles = (threadgroup E*)scratch.weight;
  const uint x_tile = kRows * kDeep, weight_tile = p.transpose ? kColumns * kDeep : kDepth * kWide;
  const uint turns = (p.k + kDepth - 1) / kDepth;
  for (uint turn = 0; turn <= turns; ++turn) {
    // The tiles of this turn begin their way, those of the turn before are multiplied, then these arrive.
    const uint k = turn * kDepth, here = turn % 2, before = 1 - here;
    if (turn < turns) {
      x_copy.start(x + k, ulong(p.xHeads) * p.xDim, rows, p.k - k, index);
      weight_copy.start(weight, p, n0, k, index);
    }
    if (turn > 0) multiply(sums, part, x_tiles + before * x_tile, weight_tiles + before * weight_tile, p.transpose);
    if (turn == turns) break;
    x_copy.finish(x_tiles + here * x_tile, index);
    weight_copy.finish(weight_tiles + here * weight_tile, p.transpose, index);
    threadgroup_barrier(mem_flags::mem_threadgroup);
  }
  store(sums, part, out, p, sequence, m0, rows, n0, head, lane);
}

#define HEAD_MATMUL(name, X, O, ...)                                                                       \
  template [[host_name("head_matmul_" name)]] [[kernel]] decltype(head_matmul<X, __VA_ARGS__, O>) head_matmul< \
      X, __VA_ARGS__, O>;
#define HEAD_MATMUL_OF(w, ...)                               \
  HEAD_MATMUL("f32_" w "_f32", float, float, __VA_ARGS__)    \
  HEAD_MATMUL("f16_" w "_f32", half, float, __VA_ARGS__)     \
  HEAD_MATMUL("bf16_" w "_f32", bfloat, float, __VA_ARGS__)  \
  HEAD_MATMUL("f32_" w "_f16", float, half, __VA_ARGS__)     \
  HEAD_MATMUL("f16_" w "_f16", half, half, __VA_ARGS__)      \
  HEAD_MATMUL("f32_" w "_bf16", float, bfloat, __VA_ARGS__)  \
  HEAD_MATMUL("bf16_" w "_bf16", bfloat, bfloat, __VA_ARGS__)
MLXTS_WEIGHTS(HEAD_MATMUL_OF)
