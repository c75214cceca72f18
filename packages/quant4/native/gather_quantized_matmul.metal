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

#ifdef MLXTS_CUDA
// The same where warpgroups multiply: a slot has up to kTokens rows of x.
template <typename Tile>
METAL_FUNC void gather_by_warpgroups(device const bfloat* x, device const uint* weight, device const bfloat* scales,
                                     device const bfloat* biases, device const Index* rhs, device const Index* lhs,
                                     device const Index* order, device const Index* offsets, device bfloat* out,
                                     constant Params& p, device MlxtsFault* fault, threadgroup uchar* memory,
                                     uint2 group, uint index, uint lane, uint simdgroup) {
  const GatheredOrder<Params, ThreadgroupFaultSearch> ordered = {
      {p, {rhs, true}, {lhs, (p.present & GATHER_QUANTIZED_MATMUL_HAS_LHS_INDICES) != 0}},
      {order, (p.present & GATHER_QUANTIZED_MATMUL_HAS_ORDER) != 0},
      {offsets, (p.present & GATHER_QUANTIZED_MATMUL_HAS_OFFSETS) != 0}};
  const GatherQuantizedMatmulScratch s = scratch_of(memory, p);
  if (group.x == 0 && group.y == 0) {
    const GatherFaults codes = {GATHER_QUANTIZED_MATMUL_FAULT_RHS_INDICES, GATHER_QUANTIZED_MATMUL_FAULT_LHS_INDICES,
                                GATHER_QUANTIZED_MATMUL_FAULT_OFFSETS, GATHER_QUANTIZED_MATMUL_FAULT_ORDER};
    ordered.right(ThreadgroupFaultSearch{fault, (threadgroup uint*)s.xTiles, index, Tile::kThreads}, codes);
  }
  list_rows(ordered, group.y, Tile::kTokens, s.xRows, s.outRows, s.slot, index);
  const uint rows = s.slot[1];
  if (rows == 0) return;
  const auto w = weights_at<4>(weight, scales, biases, p, s.slot[0]);
  const ListedRows<const bfloat> x_rows = {x, p.cols, s.xRows};
  const ListedRows<bfloat> out_rows = {out, p.rows, s.outRows};
  multiply_by_warpgroups(Tile{s.xTiles, s.wTiles}, x_rows, w, out_rows, rows, group.x * Tile::kRows, index, simdgroup,
                         lane, NothingAdded());
}

// With few rows of x one warp brings tiles, and threads have 128 registers at most: three threadgroups share a
// multiprocessor.
#define WARPGROUPS(Warpgroups, rows, tokens, bringers, most)                                                  \
  [[max_total_threads_per_threadgroup(most)]] kernel void                                                     \
      gather_quantized_matmul_bf16_bf16_bf16_b4_##rows##x##tokens(                                            \
          device const bfloat* x [[buffer(GATHER_QUANTIZED_MATMUL_X)]],                                       \
          device const uint* weight [[buffer(GATHER_QUANTIZED_MATMUL_WEIGHT)]],                               \
          device const bfloat* scales [[buffer(GATHER_QUANTIZED_MATMUL_SCALES)]],                             \
          device const bfloat* biases [[buffer(GATHER_QUANTIZED_MATMUL_BIASES)]],                             \
          device const Index* rhs [[buffer(GATHER_QUANTIZED_MATMUL_RHS_INDICES)]],                            \
          device const Index* lhs [[buffer(GATHER_QUANTIZED_MATMUL_LHS_INDICES)]],                            \
          device const Index* order [[buffer(GATHER_QUANTIZED_MATMUL_ORDER)]],                                \
          device const Index* offsets [[buffer(GATHER_QUANTIZED_MATMUL_OFFSETS)]],                            \
          device bfloat* out [[buffer(GATHER_QUANTIZED_MATMUL_OUT)]],                                         \
          constant Params& p [[buffer(GATHER_QUANTIZED_MATMUL_PARAMS)]],                                      \
          device MlxtsFault* fault [[buffer(GATHER_QUANTIZED_MATMUL_FAULT)]],                                 \
          threadgroup uchar* memory [[threadgroup(0)]], uint2 group [[threadgroup_position_in_grid]],         \
          uint index [[thread_index_in_threadgroup]], uint lane [[thread_index_in_simdgroup]],                \
          uint simdgroup [[simdgroup_index_in_threadgroup]]) {                                                \
    gather_by_warpgroups<WarpgroupTile<Warpgroups, tokens, bringers>>(x, weight, scales, biases, rhs, lhs,    \
                                                                      order, offsets, out, p, fault, memory,  \
                                                                      group, index, lane, simdgroup);         \
  }
WARPGROUPS(1, 64, 16, kSimd, 512)
WARPGROUPS(1, 64, 32, kSimd, 512)
WARPGROUPS(2, 128, 64, kWarpgroup, 384)
WARPGROUPS(2, 128, 128, kWarpgroup, 384)
#endif

#define MATMUL(X, S, O, bits)                                    \
  template [[host_name("gather_quantized_matmul_" #X "_" #S "_" #O \
                       "_b" #bits)]] [[kernel]] decltype(gather_quantized_matmul<X, S, O, bits>) \
      gather_quantized_matmul<X, S, O, bits>;
MLXTS_PRODUCTS(MATMUL)
