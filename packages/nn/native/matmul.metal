#include "bias_metal.h"
#include "matmul.params.h"
#include "matmul_metal.h"
#include "product_variants.h"
#ifdef MLXTS_CUDA
#include "warpgroup_matmul_cuda.h"
#endif

using namespace metal;
using namespace mlxts;

static_assert(kTileThreads == MATMUL_THREADS && kTileRows == MATMUL_ROWS && kTileColumns == MATMUL_COLUMNS &&
                  kPartRows == MATMUL_PART_ROWS && kPartColumns == MATMUL_PART_COLUMNS &&
                  kTileDepthBytes == MATMUL_DEPTH_BYTES,
              "tiles must match the declaration of matmul");

// A threadgroup computes kTileRows × kTileColumns outputs.
template <typename X, typename W, typename O>
kernel void matmul(device const X* x [[buffer(MATMUL_X)]], device const W* weight [[buffer(MATMUL_WEIGHT)]],
                   device const X* bias [[buffer(MATMUL_BIAS)]], device O* out [[buffer(MATMUL_OUT)]],
                   constant MatmulParams& p [[buffer(MATMUL_PARAMS)]], threadgroup uchar* memory [[threadgroup(0)]],
                   uint2 group [[threadgroup_position_in_grid]], uint index [[thread_index_in_threadgroup]],
                   uint lane [[thread_index_in_simdgroup]], uint simdgroup [[simdgroup_index_in_threadgroup]]) {
  const uint m0 = group.y * kTileRows, n0 = group.x * kTileColumns;
  const ProductPart part =
      product_part<kTileRows, kTileColumns, kPartRows, kPartColumns>(simdgroup, p.m - m0, p.n - n0);
  const EvenRows<const X> rows = {x + ulong(m0) * p.k, p.k};
  const MatmulScratch tiles = scratch_of(memory, p);
  Sums sums;
  fill(sums, 0.0f);
  if (p.transpose)
    add_products<true, X>(sums, part, rows, p.m - m0, weight, tiles.x, tiles.weight, {p.n, p.k}, n0, index);
  else
    add_products<false, X>(sums, part, rows, p.m - m0, weight, tiles.x, tiles.weight, {p.n, p.k}, n0, index);
  store(sums, part, out, m0, p.m, n0, p.n, lane, Bias<X>{bias, p.present & MATMUL_HAS_BIAS, p.biasF32});
}

#ifdef MLXTS_CUDA
// The same of bf16 where warpgroups multiply: 128 columns of Tokens rows of out.
template <uint Tokens>
[[max_total_threads_per_threadgroup(MATMUL_WARPGROUP_THREADS)]] kernel void matmul_warpgroups(
    device const bfloat* x [[buffer(MATMUL_X)]], device const bfloat* weight [[buffer(MATMUL_WEIGHT)]],
    device const bfloat* bias [[buffer(MATMUL_BIAS)]], device bfloat* out [[buffer(MATMUL_OUT)]],
    constant MatmulParams& p [[buffer(MATMUL_PARAMS)]], threadgroup uchar* memory [[threadgroup(0)]],
    uint2 group [[threadgroup_position_in_grid]], uint index [[thread_index_in_threadgroup]],
    uint lane [[thread_index_in_simdgroup]], uint simdgroup [[simdgroup_index_in_threadgroup]]) {
  const MatmulScratch tiles = scratch_of(memory, p);
  multiply_by_warpgroups(ProductTiles<Tokens>{tiles.x, tiles.weight}, x, weight,
                         Bias<bfloat>{bias, p.present & MATMUL_HAS_BIAS, p.biasF32}, out, p, group.x * Tokens,
                         group.y * kProductRows, index, simdgroup, lane);
}

#define WARPGROUPS(tokens)                                                         \
  template [[host_name("matmul_bf16_bf16_bf16_x" #tokens)]] [[kernel]] decltype(matmul_warpgroups<tokens>) \
      matmul_warpgroups<tokens>;
WARPGROUPS(64)
WARPGROUPS(128)
WARPGROUPS(256)
#endif

#define MATMUL(x, w, o, X, W, O) \
  template [[host_name("matmul_" #x "_" #w "_" #o)]] [[kernel]] decltype(matmul<X, W, O>) matmul<X, W, O>;
MLXTS_PRODUCT_VARIANTS(MATMUL)
