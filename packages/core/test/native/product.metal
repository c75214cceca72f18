// Each of four simdgroups computes 32 × 32 of the 64 × 64 outputs of a threadgroup.
#include "../kernels/product.params.h"
#include "metal_tile.h"

using namespace metal;
using namespace mlxts;

constant constexpr uint kRows = PRODUCT_ROWS, kColumns = PRODUCT_COLUMNS, kDepth = PRODUCT_DEPTH;

template <typename T>
kernel void product(device const T* a [[buffer(PRODUCT_A)]], device const T* b [[buffer(PRODUCT_B)]],
                    device T* out [[buffer(PRODUCT_OUT)]], constant ProductParams& p [[buffer(PRODUCT_PARAMS)]],
                    threadgroup uchar* memory [[threadgroup(0)]], uint2 group [[threadgroup_position_in_grid]],
                    uint index [[thread_index_in_threadgroup]], uint lane [[thread_index_in_simdgroup]],
                    uint simdgroup [[simdgroup_index_in_threadgroup]]) {
  const ProductScratch scratch = scratch_of(memory, p);
  threadgroup T* a_tile = (threadgroup T*)scratch.a;
  threadgroup T* b_tile = (threadgroup T*)scratch.b;
  const uint m0 = group.y * kRows, n0 = group.x * kColumns;
  const ProductPart part = {simdgroup / 2 * 32, simdgroup % 2 * 32, 32};

  // The product:
  TileCopy<T, T, kRows, kDepth, PRODUCT_THREADS> a_copy;
  TileCopy<T, T, kDepth, kColumns, PRODUCT_THREADS> b_copy;
  TileSum<32, 32> sum;
  fill(sum, 0.0f);
  for (uint k = 0; k < p.k; k += kDepth) {
    a_copy.start(a + ulong(m0) * p.k + k, p.k, p.m - m0, p.k - k, index);
    b_copy.start(b + ulong(k) * p.n + n0, p.n, p.k - k, p.n - n0, index);
    threadgroup_barrier(mem_flags::mem_threadgroup);  // the products of the tiles before are done
    a_copy.finish(a_tile, index);
    b_copy.finish(b_tile, index);
    threadgroup_barrier(mem_flags::mem_threadgroup);
    TileLeft<T, 32, kDepth> left;
    TileRight<T, kDepth, 32> right;
    load(left, a_tile + part.row * tile_stride<T>(kDepth), tile_stride<T>(kDepth));
    load(right, b_tile + part.column, tile_stride<T>(kColumns));
    multiply_add(sum, left, right);
  }
  store(sum, part, out, m0, p.m, n0, p.n, lane);
}

template [[host_name("product_f32")]] [[kernel]] decltype(product<float>) product<float>;
template [[host_name("product_f16")]] [[kernel]] decltype(product<half>) product<half>;
template [[host_name("product_bf16")]] [[kernel]] decltype(product<bfloat>) product<bfloat>;
