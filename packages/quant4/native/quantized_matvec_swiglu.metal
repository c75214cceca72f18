// Up to eight rows of x. One simdgroup: four rows of gate and of up, and the gated unit of their products.
#include "metal_gated_unit.h"
#include "metal_matvec.h"
#include "quantized_matvec_swiglu.params.h"
#ifdef MLXTS_CUDA
#include "cuda_matvec_row.h"
#endif

using namespace metal;
using namespace mlxts;

template <typename X, typename S, typename O, int Bits>
kernel void quantized_matvec_swiglu(device const X* x [[buffer(QUANTIZED_MATVEC_SWIGLU_X)]],
                                    device const uint* gateWeight [[buffer(QUANTIZED_MATVEC_SWIGLU_GATE_WEIGHT)]],
                                    device const S* gateScales [[buffer(QUANTIZED_MATVEC_SWIGLU_GATE_SCALES)]],
                                    device const S* gateBiases [[buffer(QUANTIZED_MATVEC_SWIGLU_GATE_BIASES)]],
                                    device const uint* upWeight [[buffer(QUANTIZED_MATVEC_SWIGLU_UP_WEIGHT)]],
                                    device const S* upScales [[buffer(QUANTIZED_MATVEC_SWIGLU_UP_SCALES)]],
                                    device const S* upBiases [[buffer(QUANTIZED_MATVEC_SWIGLU_UP_BIASES)]],
                                    device O* out [[buffer(QUANTIZED_MATVEC_SWIGLU_OUT)]],
                                    constant QuantizedMatvecSwigluParams& p [[buffer(QUANTIZED_MATVEC_SWIGLU_PARAMS)]],
                                    uint group [[threadgroup_position_in_grid]], uint lane [[thread_index_in_simdgroup]],
                                    uint simdgroup [[simdgroup_index_in_threadgroup]],
                                    uint simdgroups [[simdgroups_per_threadgroup]]) {
  const uint row0 = group * threadgroup_rows(simdgroups);
  const AffineMatrix<S, Bits> gate = {gateWeight, gateScales, gateBiases, p.rows, p.cols, p.groupSize};
  const AffineMatrix<S, Bits> up = {upWeight, upScales, upBiases, p.rows, p.cols, p.groupSize};
  const TwoProducts products = products_of(x, p.m, rows_from(gate, row0), rows_from(up, row0), lane, simdgroup);
  const FewOutput at = output_of(lane, simdgroup);
  const uint row = row0 + at.r;
  if (at.i < p.m && row < p.rows) out[ulong(at.i) * p.rows + row] = gated_unit(O(products.first), O(products.second));
}

#ifdef MLXTS_CUDA
// One row of x.
template <typename S, typename O>
[[max_total_threads_per_threadgroup(QUANTIZED_MATVEC_ROW_THREADS)]] kernel void quantized_matvec_swiglu_row(
    device const bfloat* x [[buffer(QUANTIZED_MATVEC_SWIGLU_X)]],
    device const uint* gateWeight [[buffer(QUANTIZED_MATVEC_SWIGLU_GATE_WEIGHT)]],
    device const S* gateScales [[buffer(QUANTIZED_MATVEC_SWIGLU_GATE_SCALES)]],
    device const S* gateBiases [[buffer(QUANTIZED_MATVEC_SWIGLU_GATE_BIASES)]],
    device const uint* upWeight [[buffer(QUANTIZED_MATVEC_SWIGLU_UP_WEIGHT)]],
    device const S* upScales [[buffer(QUANTIZED_MATVEC_SWIGLU_UP_SCALES)]],
    device const S* upBiases [[buffer(QUANTIZED_MATVEC_SWIGLU_UP_BIASES)]],
    device O* out [[buffer(QUANTIZED_MATVEC_SWIGLU_OUT)]],
    constant QuantizedMatvecSwigluParams& p [[buffer(QUANTIZED_MATVEC_SWIGLU_PARAMS)]],
    uint group [[threadgroup_position_in_grid]], uint groups [[threadgroups_per_grid]],
    uint lane [[thread_index_in_simdgroup]], uint simdgroup [[simdgroup_index_in_threadgroup]]) {
  const TilesOfTwo<S> tiles = {{gateWeight, gateScales, gateBiases, p.rows, p.cols, p.groupSize},
                               {upWeight, upScales, upBiases, p.rows, p.cols, p.groupSize}};
  const SumsOfSpans sums = sum_spans<S>(x, tiles, p.cols, p.groupSize, group, groups, lane, simdgroup);
  for (uint i = simdgroup * kSimd + lane; sums.has(i); i += simdgroups_of_threadgroup() * kSimd) {
    const uint r = sums.row(i), row = sums.tile(i) * tiles.kEach + r;
    if (r < tiles.kEach && row < p.rows)
      out[row] = gated_unit(O(sums.product(i, r)), O(sums.product(i, r + tiles.kEach)));
  }
}

#define ROW(S, O)                                                                        \
  template [[host_name("quantized_matvec_swiglu_bf16_" #S "_" #O "_b4_row")]] [[kernel]] decltype( \
      quantized_matvec_swiglu_row<S, O>) quantized_matvec_swiglu_row<S, O>;
MLXTS_ROWS(ROW)
#endif

#define MATVEC(X, S, O, bits)                                                                       \
  template [[host_name("quantized_matvec_swiglu_" #X "_" #S "_" #O "_b" #bits)]] [[kernel]] decltype( \
      quantized_matvec_swiglu<X, S, O, bits>) quantized_matvec_swiglu<X, S, O, bits>;
MLXTS_PRODUCTS(MATVEC)
