// One simdgroup multiplies operands of two dtypes.
#include "../kernels/mixed_product.params.h"
#include "metal_tile.h"

using namespace metal;
using namespace mlxts;

constant constexpr uint M = MIXED_PRODUCT_M, N = MIXED_PRODUCT_N, K = MIXED_PRODUCT_K;

// A whole matrix [rows, columns] into threadgroup memory.
template <typename T, uint Rows, uint Columns>
METAL_FUNC void bring(device const T* from, threadgroup T* to, uint lane) {
  TileCopy<T, T, Rows, Columns, 32> copy;
  copy.start(from, Columns, Rows, Columns, lane);
  copy.finish(to, lane);
  threadgroup_barrier(mem_flags::mem_threadgroup);
}

template <typename L, typename R>
kernel void mixed_product(device const L* a [[buffer(MIXED_PRODUCT_A)]], device const R* b [[buffer(MIXED_PRODUCT_B)]],
                          device float* out [[buffer(MIXED_PRODUCT_OUT)]],
                          constant MixedProductParams& p [[buffer(MIXED_PRODUCT_PARAMS)]],
                          threadgroup uchar* memory [[threadgroup(0)]], uint lane [[thread_index_in_simdgroup]]) {
  const MixedProductScratch scratch = scratch_of(memory, p);
  threadgroup L* a_tile = (threadgroup L*)scratch.a;
  threadgroup R* b_tile = (threadgroup R*)scratch.b;
  TileLeft<L, M, K> left;
  TileRight<R, K, N> right;
  if (p.transposed) {
    bring<L, K, M>(a, a_tile, lane);
    bring<R, N, K>(b, b_tile, lane);
    load_transposed(left, a_tile, tile_stride<L>(M));
    load_transposed(right, b_tile, tile_stride<R>(K));
  } else {
    bring<L, M, K>(a, a_tile, lane);
    bring<R, K, N>(b, b_tile, lane);
    load(left, a_tile, tile_stride<L>(K));
    load(right, b_tile, tile_stride<R>(N));
  }
  TileSum<M, N> sum;
  fill(sum, 0.0f);
  multiply_add(sum, left, right);
  MLXTS_UNROLL for (uint r = 0; r < M / 8; ++r) {
    MLXTS_UNROLL for (uint c = 0; c < N / 8; ++c) {
      MLXTS_UNROLL for (uint e = 0; e < 2; ++e)
          out[(8 * r + matrix_row(lane)) * N + 8 * c + matrix_column(lane) + e] = sum.at(r, c, e);
    }
  }
}

#define MIXED_PRODUCT(name, L, R) \
  template [[host_name("mixed_product_" name)]] [[kernel]] decltype(mixed_product<L, R>) mixed_product<L, R>;
MIXED_PRODUCT("f16_f32", half, float)
MIXED_PRODUCT("f32_f16", float, half)
MIXED_PRODUCT("bf16_f32", bfloat, float)
MIXED_PRODUCT("f32_bf16", float, bfloat)
