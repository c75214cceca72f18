// More rows of x.
#include "metal_matmul.h"
#include "quantized_matmul.params.h"

using namespace metal;
using namespace mlxts;

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
  const ProductPart part = product_part<kM, kN, kPartM, kPartN>(simdgroup, p.m - m0, p.rows - row0);
  const AffineMatrix<S, Bits> w = weights_at<Bits>(weight, scales, biases, p, batch.q);
  const EvenRows<const X> rows = {x + (batch.x * p.m + m0) * p.cols, p.cols};
  Products products = products_of<X>(rows, w, scratch_of(memory, p), part, row0, p.m - m0, index);
  store(products, part, out + ulong(group.z) * p.m * p.rows, m0, p.m, row0, p.rows, lane,
        LinearBias{bias, p.biasDtype, 0});
}

#ifdef MLXTS_CUDA
// The same where warpgroups multiply: kRows rows of W to a threadgroup against kTokens rows of x.
template <uint Warpgroups, uint Tokens>
[[max_total_threads_per_threadgroup(384)]] kernel void quantized_matmul_warpgroups(
    device const bfloat* x [[buffer(QUANTIZED_MATMUL_X)]],
    device const uint* weight [[buffer(QUANTIZED_MATMUL_WEIGHT)]],
    device const bfloat* scales [[buffer(QUANTIZED_MATMUL_SCALES)]],
    device const bfloat* biases [[buffer(QUANTIZED_MATMUL_BIASES)]],
    device const uchar* bias [[buffer(QUANTIZED_MATMUL_BIAS)]], device bfloat* out [[buffer(QUANTIZED_MATMUL_OUT)]],
    constant QuantizedMatmulParams& p [[buffer(QUANTIZED_MATMUL_PARAMS)]], threadgroup uchar* memory [[threadgroup(0)]],
    uint3 group [[threadgroup_position_in_grid]], uint index [[thread_index_in_threadgroup]],
    uint lane [[thread_index_in_simdgroup]], uint simdgroup [[simdgroup_index_in_threadgroup]]) {
  typedef WarpgroupTile<Warpgroups, Tokens> Tile;
  const uint m0 = group.y * Tile::kTokens, row0 = group.x * Tile::kRows;
  const Batch batch = batch_at(p, group.z);
  const AffineMatrix<bfloat, 4> w = weights_at<4>(weight, scales, biases, p, batch.q);
  const QuantizedMatmulScratch scratch = scratch_of(memory, p);
  const EvenRows<const bfloat> x_rows = {x + (batch.x * p.m + m0) * p.cols, p.cols};
  const EvenRows<bfloat> out_rows = {out + (ulong(group.z) * p.m + m0) * p.rows, p.rows};
  multiply_by_warpgroups(Tile{scratch.xTiles, scratch.wTiles}, x_rows, w, out_rows, p.m - m0, row0, index, simdgroup,
                         lane, LinearBias{bias, p.biasDtype, row0});
}

#define WARPGROUPS(Warpgroups, rows, tokens)                                              \
  template [[host_name("quantized_matmul_bf16_bf16_bf16_b4_" #rows "x" #tokens)]] [[kernel]] \
      decltype(quantized_matmul_warpgroups<Warpgroups, tokens>) quantized_matmul_warpgroups<Warpgroups, tokens>;
WARPGROUPS(2, 128, 128)
WARPGROUPS(2, 128, 96)
WARPGROUPS(2, 128, 64)
WARPGROUPS(1, 64, 64)
#endif

#define MATMUL(X, S, O, bits)                          \
  template                                             \
      [[host_name("quantized_matmul_" #X "_" #S "_" #O \
                  "_b" #bits)]] [[kernel]] decltype(quantized_matmul<X, S, O, bits>) quantized_matmul<X, S, O, bits>;
MLXTS_PRODUCTS(MATMUL)
