// A row of threadgroups has a slot: up to kM rows of x, which one matrix multiplies.
#include "gather_quantized_matmul.params.h"
#include "gathered_rows.h"
#include "metal_matmul.h"

using namespace metal;
using namespace mlxts;

typedef GatherQuantizedMatmulParams Params;

template <typename X, typename S, typename O, int Bits>
kernel void gather_quantized_matmul(device const X* x [[buffer(GATHER_QUANTIZED_MATMUL_X)]],
                                    device const uint* weight [[buffer(GATHER_QUANTIZED_MATMUL_WEIGHT)]],
                                    device const S* scales [[buffer(GATHER_QUANTIZED_MATMUL_SCALES)]],
                                    device const S* biases [[buffer(GATHER_QUANTIZED_MATMUL_BIASES)]],
                                    device const Index* rhs [[buffer(GATHER_QUANTIZED_MATMUL_RHS_INDICES)]],
                                    device const Index* lhs [[buffer(GATHER_QUANTIZED_MATMUL_LHS_INDICES)]],
                                    device const Index* order [[buffer(GATHER_QUANTIZED_MATMUL_ORDER)]],
                                    device const Index* offsets [[buffer(GATHER_QUANTIZED_MATMUL_OFFSETS)]],
                                    device O* out [[buffer(GATHER_QUANTIZED_MATMUL_OUT)]],
                                    constant Params& p [[buffer(GATHER_QUANTIZED_MATMUL_PARAMS)]],
                                    device MlxtsFault* fault [[buffer(GATHER_QUANTIZED_MATMUL_FAULT)]],
                                    threadgroup uchar* memory [[threadgroup(0)]],
                                    uint2 group [[threadgroup_position_in_grid]],
                                    uint index [[thread_index_in_threadgroup]], uint lane [[thread_index_in_simdgroup]],
                                    uint simdgroup [[simdgroup_index_in_threadgroup]]) {
  const GatheredOrder<Params> ordered = {
      {p, {rhs, true}, {lhs, (p.present & GATHER_QUANTIZED_MATMUL_HAS_LHS_INDICES) != 0}},
      {order, (p.present & GATHER_QUANTIZED_MATMUL_HAS_ORDER) != 0},
      {offsets, (p.present & GATHER_QUANTIZED_MATMUL_HAS_OFFSETS) != 0}};
  if (group.x == 0 && group.y == 0 && simdgroup == 0) {
    const GatherFaults codes = {GATHER_QUANTIZED_MATMUL_FAULT_RHS_INDICES, GATHER_QUANTIZED_MATMUL_FAULT_LHS_INDICES,
                                GATHER_QUANTIZED_MATMUL_FAULT_OFFSETS, GATHER_QUANTIZED_MATMUL_FAULT_ORDER};
    ordered.right(FaultSearch{fault, lane}, codes);
  }
  const GatherQuantizedMatmulScratch s = scratch_of(memory, p);
  list_rows(ordered, group.y, kM, s.xRows, s.outRows, s.slot, index);
  const uint rows = s.slot[1], row0 = group.x * kN;
  if (rows == 0) return;
  const ProductPart part = product_part<kM, kN, kPartM, kPartN>(simdgroup, rows, p.rows - row0);
  const auto w = weights_at<Bits>(weight, scales, biases, p, s.slot[0]);
  Products products = products_of<X>(ListedRows<const X>{x, p.cols, s.xRows}, w, s, part, row0, rows, index);
  store_rows<O>(products, part, ListedRows<O>{out, p.rows, s.outRows}, rows, row0, p.rows, lane, NothingAdded());
}

#define MATMUL(X, S, O, bits)                                    \
  template [[host_name("gather_quantized_matmul_" #X "_" #S "_" #O \
                       "_b" #bits)]] [[kernel]] decltype(gather_quantized_matmul<X, S, O, bits>) \
      gather_quantized_matmul<X, S, O, bits>;
MLXTS_PRODUCTS(MATMUL)
