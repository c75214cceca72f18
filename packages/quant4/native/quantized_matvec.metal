// Up to eight rows of x.
#include "quantized_matvec.params.h"
#include "store_product_metal.h"
#ifdef MLXTS_CUDA
#include "cuda_matvec_tiles.h"
#endif

using namespace metal;
using namespace mlxts;

template <typename X, typename S, typename O, int Bits>
kernel void quantized_matvec(device const X* x [[buffer(QUANTIZED_MATVEC_X)]],
                             device const uint* weight [[buffer(QUANTIZED_MATVEC_WEIGHT)]],
                             device const S* scales [[buffer(QUANTIZED_MATVEC_SCALES)]],
                             device const S* biases [[buffer(QUANTIZED_MATVEC_BIASES)]],
                             device const uchar* bias [[buffer(QUANTIZED_MATVEC_BIAS)]],
                             device O* out [[buffer(QUANTIZED_MATVEC_OUT)]],
                             constant QuantizedMatvecParams& p [[buffer(QUANTIZED_MATVEC_PARAMS)]],
                             uint3 group [[threadgroup_position_in_grid]], uint lane [[thread_index_in_simdgroup]],
                             uint simdgroup [[simdgroup_index_in_threadgroup]],
                             uint simdgroups [[simdgroups_per_threadgroup]]) {
  const uint row0 = group.x * threadgroup_rows(simdgroups);
  const Batch batch = batch_at(p, group.z);
  const auto w = weights_at<Bits>(weight, scales, biases, p, batch.q);
  store_product(x + batch.x * p.m * p.cols, p.m, rows_from(w, row0), out + ulong(group.z) * p.m * p.rows + row0, p.rows,
                LinearBias{bias, p.biasDtype, row0}, lane, simdgroup);
}

#ifdef MLXTS_CUDA
template <typename S, typename O>
struct TilesOfMatrix {
  AffineMatrix<S, 4> w;
  LinearBias added;
  device O* out;

  METAL_FUNC AffineMatrix<S, 4> rows(uint tile, uint) const thread { return rows_from(w, tile * kTileRows); }
  METAL_FUNC void store(uint tile, uint r, thread float (&products)[1]) const thread {
    const uint row = tile * kTileRows + r;
    if (row < w.rows) out[row] = O(products[0] + added(row));
  }
};

// One row of x against tiles.
template <typename S, typename O>
[[max_total_threads_per_threadgroup(256)]] kernel void quantized_matvec_tiles(
    device const bfloat* x [[buffer(QUANTIZED_MATVEC_X)]], device const uint* weight [[buffer(QUANTIZED_MATVEC_WEIGHT)]],
    device const S* scales [[buffer(QUANTIZED_MATVEC_SCALES)]],
    device const S* biases [[buffer(QUANTIZED_MATVEC_BIASES)]],
    device const uchar* bias [[buffer(QUANTIZED_MATVEC_BIAS)]], device O* out [[buffer(QUANTIZED_MATVEC_OUT)]],
    constant QuantizedMatvecParams& p [[buffer(QUANTIZED_MATVEC_PARAMS)]], uint3 group [[threadgroup_position_in_grid]],
    uint lane [[thread_index_in_simdgroup]], uint simdgroup [[simdgroup_index_in_threadgroup]]) {
  const Batch batch = batch_at(p, group.z);
  const TilesOfMatrix<S, O> tiles = {weights_at<4>(weight, scales, biases, p, batch.q), LinearBias{bias, p.biasDtype, 0},
                                     out + ulong(group.z) * p.rows};
  multiply_tiles<S, 1>(x + batch.x * p.cols, tiles, (p.rows + kTileRows - 1) / kTileRows, p.cols, p.groupSize,
                       group.x, lane, simdgroup);
}

#define TILES(S, O)                                                                              \
  template [[host_name("quantized_matvec_bf16_" #S "_" #O "_b4_tiles")]] [[kernel]] decltype( \
      quantized_matvec_tiles<S, O>) quantized_matvec_tiles<S, O>;
MLXTS_TILES(TILES)
#endif

#define MATVEC(X, S, O, bits)                          \
  template                                             \
      [[host_name("quantized_matvec_" #X "_" #S "_" #O \
                  "_b" #bits)]] [[kernel]] decltype(quantized_matvec<X, S, O, bits>) quantized_matvec<X, S, O, bits>;
MLXTS_PRODUCTS(MATVEC)
