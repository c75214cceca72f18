// Up to eight rows of x against the matrix that a pair has chosen. One simdgroup: four of its rows.
#include "gather_quantized_matvec.params.h"
#include "gathered_rows.h"
#include "store_product_metal.h"
#ifdef MLXTS_CUDA
#include "cuda_matvec_row.h"
#endif

using namespace metal;
using namespace mlxts;

template <typename X, typename S, typename O, int Bits>
kernel void gather_quantized_matvec(device const X* x [[buffer(GATHER_QUANTIZED_MATVEC_X)]],
                                    device const uint* weight [[buffer(GATHER_QUANTIZED_MATVEC_WEIGHT)]],
                                    device const S* scales [[buffer(GATHER_QUANTIZED_MATVEC_SCALES)]],
                                    device const S* biases [[buffer(GATHER_QUANTIZED_MATVEC_BIASES)]],
                                    device const Index* rhs [[buffer(GATHER_QUANTIZED_MATVEC_RHS_INDICES)]],
                                    device const Index* lhs [[buffer(GATHER_QUANTIZED_MATVEC_LHS_INDICES)]],
                                    device O* out [[buffer(GATHER_QUANTIZED_MATVEC_OUT)]],
                                    constant GatherQuantizedMatvecParams& p [[buffer(GATHER_QUANTIZED_MATVEC_PARAMS)]],
                                    device MlxtsFault* fault [[buffer(GATHER_QUANTIZED_MATVEC_FAULT)]],
                                    uint3 group [[threadgroup_position_in_grid]],
                                    uint lane [[thread_index_in_simdgroup]],
                                    uint simdgroup [[simdgroup_index_in_threadgroup]],
                                    uint simdgroups [[simdgroups_per_threadgroup]]) {
  wait_for_kernels();
  const GatheredPairs<GatherQuantizedMatvecParams> pairs = {
      p, {rhs, true}, {lhs, (p.present & GATHER_QUANTIZED_MATVEC_HAS_LHS_INDICES) != 0}};
  if (group.x == 0 && group.y == 0 && group.z == 0 && simdgroup == 0) {
    const GatherFaults codes = {GATHER_QUANTIZED_MATVEC_FAULT_RHS_INDICES, GATHER_QUANTIZED_MATVEC_FAULT_LHS_INDICES, 0,
                                0};
    pairs.right(FaultSearch{fault, lane}, codes);
  }
  const uint row0 = group.x * threadgroup_rows(simdgroups), pair = group.z;
  if (row0 >= p.rows) return;
  const uint m0 = group.y * QUANTIZED_MATVEC_MOST_M;
  const auto w = weights_at<Bits>(weight, scales, biases, p, pairs.matrix(pair));
  store_product(x + (ulong(pairs.left(pair)) * p.m + m0) * p.cols, min(p.m - m0, uint(QUANTIZED_MATVEC_MOST_M)),
                rows_from(w, row0), out + (ulong(pair) * p.m + m0) * p.rows + row0, p.rows, NothingAdded(), lane, simdgroup);
}

#ifdef MLXTS_CUDA
// One row of x.
template <typename S, typename O>
[[max_total_threads_per_threadgroup(QUANTIZED_MATVEC_ROW_THREADS)]] kernel void gather_quantized_matvec_row(
    device const bfloat* x [[buffer(GATHER_QUANTIZED_MATVEC_X)]],
    device const uint* weight [[buffer(GATHER_QUANTIZED_MATVEC_WEIGHT)]],
    device const S* scales [[buffer(GATHER_QUANTIZED_MATVEC_SCALES)]],
    device const S* biases [[buffer(GATHER_QUANTIZED_MATVEC_BIASES)]],
    device const Index* rhs [[buffer(GATHER_QUANTIZED_MATVEC_RHS_INDICES)]],
    device const Index* lhs [[buffer(GATHER_QUANTIZED_MATVEC_LHS_INDICES)]],
    device O* out [[buffer(GATHER_QUANTIZED_MATVEC_OUT)]],
    constant GatherQuantizedMatvecParams& p [[buffer(GATHER_QUANTIZED_MATVEC_PARAMS)]],
    device MlxtsFault* fault [[buffer(GATHER_QUANTIZED_MATVEC_FAULT)]],
    uint3 group [[threadgroup_position_in_grid]], uint3 groups [[threadgroups_per_grid]],
    uint lane [[thread_index_in_simdgroup]], uint simdgroup [[simdgroup_index_in_threadgroup]]) {
  wait_for_kernels();
  const GatheredPairs<GatherQuantizedMatvecParams> pairs = {
      p, {rhs, true}, {lhs, (p.present & GATHER_QUANTIZED_MATVEC_HAS_LHS_INDICES) != 0}};
  if (group.x == 0 && group.y == 0 && group.z == 0 && simdgroup == 0) {
    const GatherFaults codes = {GATHER_QUANTIZED_MATVEC_FAULT_RHS_INDICES, GATHER_QUANTIZED_MATVEC_FAULT_LHS_INDICES, 0,
                                0};
    pairs.right(FaultSearch{fault, lane}, codes);
  }
  const uint pair = group.z;
  const TilesOfOne<S> tiles = {weights_at<4>(weight, scales, biases, p, pairs.matrix(pair))};
  const SumsOfSpans sums = sum_spans<S>(x + ulong(pairs.left(pair)) * p.cols, tiles, p.cols, p.groupSize, group.x,
                                        groups.x, lane, simdgroup);
  for (uint i = simdgroup * kSimd + lane; sums.has(i); i += simdgroups_of_threadgroup() * kSimd) {
    const uint row = sums.tile(i) * kTileRows + sums.row(i);
    if (row >= p.rows) return;
    out[ulong(pair) * p.rows + row] = O(sums.product(i, sums.row(i)));
  }
}

#define ROW(S, O)                                                                               \
  template [[host_name("gather_quantized_matvec_bf16_" #S "_" #O "_b4_row")]] [[kernel]] decltype( \
      gather_quantized_matvec_row<S, O>) gather_quantized_matvec_row<S, O>;
MLXTS_ROWS(ROW)
#endif

#define MATVEC(X, S, O, bits)                                    \
  template [[host_name("gather_quantized_matvec_" #X "_" #S "_" #O \
                       "_b" #bits)]] [[kernel]] decltype(gather_quantized_matvec<X, S, O, bits>) \
      gather_quantized_matvec<X, S, O, bits>;
MLXTS_PRODUCTS(MATVEC)
