// Up to eight rows of x.
#include "quantized_matvec.params.h"
#include "store_product_metal.h"
#ifdef MLXTS_CUDA
#include "cuda_matvec_row.h"
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
// One row of x.
template <typename S, typename O>
[[max_total_threads_per_threadgroup(QUANTIZED_MATVEC_ROW_THREADS)]] kernel void quantized_matvec_row(
    device const bfloat* x [[buffer(QUANTIZED_MATVEC_X)]],
    device const uint* weight [[buffer(QUANTIZED_MATVEC_WEIGHT)]],
    device const S* scales [[buffer(QUANTIZED_MATVEC_SCALES)]],
    device const S* biases [[buffer(QUANTIZED_MATVEC_BIASES)]],
    device const uchar* bias [[buffer(QUANTIZED_MATVEC_BIAS)]], device O* out [[buffer(QUANTIZED_MATVEC_OUT)]],
    constant QuantizedMatvecParams& p [[buffer(QUANTIZED_MATVEC_PARAMS)]], uint3 group [[threadgroup_position_in_grid]],
    uint3 groups [[threadgroups_per_grid]], uint lane [[thread_index_in_simdgroup]],
    uint simdgroup [[simdgroup_index_in_threadgroup]]) {
  const Batch batch = batch_at(p, group.z);
  const TilesOfOne<S> tiles = {weights_at<4>(weight, scales, biases, p, batch.q)};
  const SumsOfSpans sums =
      sum_spans<S>(x + batch.x * p.cols, tiles, p.cols, p.groupSize, group.x, groups.x, lane, simdgroup);
  for (uint i = simdgroup * kSimd + lane; sums.has(i); i += simdgroups_of_threadgroup() * kSimd) {
    const uint row = sums.tile(i) * kTileRows + sums.row(i);
    if (row >= p.rows) return;
    out[ulong(group.z) * p.rows + row] = O(sums.product(i, sums.row(i)) + linear_bias(bias, p.biasDtype, row));
  }
}

#define ROW(S, O)                                                                              \
  template [[host_name("quantized_matvec_bf16_" #S "_" #O "_b4_row")]] [[kernel]] decltype(quantized_matvec_row<S, O>) \
      quantized_matvec_row<S, O>;
MLXTS_ROWS(ROW)
#endif

#define MATVEC(X, S, O, bits)                          \
  template                                             \
      [[host_name("quantized_matvec_" #X "_" #S "_" #O \
                  "_b" #bits)]] [[kernel]] decltype(quantized_matvec<X, S, O, bits>) quantized_matvec<X, S, O, bits>;
MLXTS_PRODUCTS(MATVEC)
