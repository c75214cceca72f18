// Up to eight rows of x against the gate and up matrices that a pair has chosen. One simdgroup: four rows of both, and the
// gated unit of their products.
#include "gather_quantized_matvec_swiglu.params.h"
#include "metal_gated_unit.h"
#include "gathered_rows.h"
#include "metal_matvec.h"
#ifdef MLXTS_CUDA
#include "cuda_matvec_row.h"
#endif

using namespace metal;
using namespace mlxts;

template <typename X, typename S, typename O, int Bits>
kernel void gather_quantized_matvec_swiglu(
    device const X* x [[buffer(GATHER_QUANTIZED_MATVEC_SWIGLU_X)]],
    device const uint* gateWeight [[buffer(GATHER_QUANTIZED_MATVEC_SWIGLU_GATE_WEIGHT)]],
    device const S* gateScales [[buffer(GATHER_QUANTIZED_MATVEC_SWIGLU_GATE_SCALES)]],
    device const S* gateBiases [[buffer(GATHER_QUANTIZED_MATVEC_SWIGLU_GATE_BIASES)]],
    device const uint* upWeight [[buffer(GATHER_QUANTIZED_MATVEC_SWIGLU_UP_WEIGHT)]],
    device const S* upScales [[buffer(GATHER_QUANTIZED_MATVEC_SWIGLU_UP_SCALES)]],
    device const S* upBiases [[buffer(GATHER_QUANTIZED_MATVEC_SWIGLU_UP_BIASES)]],
    device const Index* rhs [[buffer(GATHER_QUANTIZED_MATVEC_SWIGLU_RHS_INDICES)]],
    device const Index* lhs [[buffer(GATHER_QUANTIZED_MATVEC_SWIGLU_LHS_INDICES)]],
    device O* out [[buffer(GATHER_QUANTIZED_MATVEC_SWIGLU_OUT)]],
    constant GatherQuantizedMatvecSwigluParams& p [[buffer(GATHER_QUANTIZED_MATVEC_SWIGLU_PARAMS)]],
    device MlxtsFault* fault [[buffer(GATHER_QUANTIZED_MATVEC_SWIGLU_FAULT)]],
    uint3 group [[threadgroup_position_in_grid]], uint lane [[thread_index_in_simdgroup]],
    uint simdgroup [[simdgroup_index_in_threadgroup]], uint simdgroups [[simdgroups_per_threadgroup]]) {
  wait_for_kernels();
  const GatheredPairs<GatherQuantizedMatvecSwigluParams> pairs = {
      p, {rhs, true}, {lhs, (p.present & GATHER_QUANTIZED_MATVEC_SWIGLU_HAS_LHS_INDICES) != 0}};
  if (group.x == 0 && group.y == 0 && group.z == 0 && simdgroup == 0) {
    const GatherFaults codes = {GATHER_QUANTIZED_MATVEC_SWIGLU_FAULT_RHS_INDICES,
                                GATHER_QUANTIZED_MATVEC_SWIGLU_FAULT_LHS_INDICES, 0, 0};
    pairs.right(FaultSearch{fault, lane}, codes);
  }
  const uint row0 = group.x * threadgroup_rows(simdgroups), pair = group.z;
  if (row0 >= p.rows) return;
  const uint m0 = group.y * QUANTIZED_MATVEC_MOST_M, m = min(p.m - m0, uint(QUANTIZED_MATVEC_MOST_M));
  const ulong matrix = pairs.matrix(pair);  // read once: both products have the same
  const auto gate = rows_from(weights_at<Bits>(gateWeight, gateScales, gateBiases, p, matrix), row0);
  const auto up = rows_from(weights_at<Bits>(upWeight, upScales, upBiases, p, matrix), row0);
  x += (ulong(pairs.left(pair)) * p.m + m0) * p.cols;
  const TwoProducts products = products_of(x, m, gate, up, lane, simdgroup);
  const FewOutput at = output_of(lane, simdgroup);
  const uint row = row0 + at.r;
  if (at.i < m && row < p.rows)
    out[(ulong(pair) * p.m + m0 + at.i) * p.rows + row] = gated_unit(O(products.first), O(products.second));
}

#ifdef MLXTS_CUDA
// One row of x.
template <typename S, typename O>
[[max_total_threads_per_threadgroup(QUANTIZED_MATVEC_ROW_THREADS)]] kernel void gather_quantized_matvec_swiglu_row(
    device const bfloat* x [[buffer(GATHER_QUANTIZED_MATVEC_SWIGLU_X)]],
    device const uint* gateWeight [[buffer(GATHER_QUANTIZED_MATVEC_SWIGLU_GATE_WEIGHT)]],
    device const S* gateScales [[buffer(GATHER_QUANTIZED_MATVEC_SWIGLU_GATE_SCALES)]],
    device const S* gateBiases [[buffer(GATHER_QUANTIZED_MATVEC_SWIGLU_GATE_BIASES)]],
    device const uint* upWeight [[buffer(GATHER_QUANTIZED_MATVEC_SWIGLU_UP_WEIGHT)]],
    device const S* upScales [[buffer(GATHER_QUANTIZED_MATVEC_SWIGLU_UP_SCALES)]],
    device const S* upBiases [[buffer(GATHER_QUANTIZED_MATVEC_SWIGLU_UP_BIASES)]],
    device const Index* rhs [[buffer(GATHER_QUANTIZED_MATVEC_SWIGLU_RHS_INDICES)]],
    device const Index* lhs [[buffer(GATHER_QUANTIZED_MATVEC_SWIGLU_LHS_INDICES)]],
    device O* out [[buffer(GATHER_QUANTIZED_MATVEC_SWIGLU_OUT)]],
    constant GatherQuantizedMatvecSwigluParams& p [[buffer(GATHER_QUANTIZED_MATVEC_SWIGLU_PARAMS)]],
    device MlxtsFault* fault [[buffer(GATHER_QUANTIZED_MATVEC_SWIGLU_FAULT)]],
    uint3 group [[threadgroup_position_in_grid]], uint3 groups [[threadgroups_per_grid]],
    uint lane [[thread_index_in_simdgroup]], uint simdgroup [[simdgroup_index_in_threadgroup]]) {
  wait_for_kernels();
  const GatheredPairs<GatherQuantizedMatvecSwigluParams> pairs = {
      p, {rhs, true}, {lhs, (p.present & GATHER_QUANTIZED_MATVEC_SWIGLU_HAS_LHS_INDICES) != 0}};
  if (group.x == 0 && group.y == 0 && group.z == 0 && simdgroup == 0) {
    const GatherFaults codes = {GATHER_QUANTIZED_MATVEC_SWIGLU_FAULT_RHS_INDICES,
                                GATHER_QUANTIZED_MATVEC_SWIGLU_FAULT_LHS_INDICES, 0, 0};
    pairs.right(FaultSearch{fault, lane}, codes);
  }
  const uint pair = group.z;
  const ulong matrix = pairs.matrix(pair);  // read once: both products have the same
  const TilesOfTwo<S> tiles = {weights_at<4>(gateWeight, gateScales, gateBiases, p, matrix),
                               weights_at<4>(upWeight, upScales, upBiases, p, matrix)};
  const SumsOfSpans sums = sum_spans<S>(x + ulong(pairs.left(pair)) * p.cols, tiles, p.cols, p.groupSize, group.x,
                                        groups.x, lane, simdgroup);
  for (uint i = simdgroup * kSimd + lane; sums.has(i); i += simdgroups_of_threadgroup() * kSimd) {
    const uint r = sums.row(i), row = sums.tile(i) * tiles.kEach + r;
    if (r < tiles.kEach && row < p.rows)
      out[ulong(pair) * p.rows + row] = gated_unit(O(sums.product(i, r)), O(sums.product(i, r + tiles.kEach)));
  }
}

#define ROW(S, O)                                                                               \
  template [[host_name("gather_quantized_matvec_swiglu_bf16_" #S "_" #O "_b4_row")]] [[kernel]] decltype( \
      gather_quantized_matvec_swiglu_row<S, O>) gather_quantized_matvec_swiglu_row<S, O>;
MLXTS_ROWS(ROW)
#endif

#define MATVEC(X, S, O, bits)                                                                              \
  template [[host_name("gather_quantized_matvec_swiglu_" #X "_" #S "_" #O "_b" #bits)]] [[kernel]] decltype( \
      gather_quantized_matvec_swiglu<X, S, O, bits>) gather_quantized_matvec_swiglu<X, S, O, bits>;
MLXTS_PRODUCTS(MATVEC)
