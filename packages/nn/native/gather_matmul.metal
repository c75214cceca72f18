// A row of threadgroups has a slot: up to kTileRows rows of x against one matrix.
#include "gather_matmul.params.h"
#include "matmul_metal.h"
#include "product_variants.h"
#include "stacked_weight.h"

using namespace metal;
using namespace mlxts;

static_assert(kTileThreads == GATHER_MATMUL_THREADS && kTileRows == GATHER_MATMUL_ROWS &&
                  kTileColumns == GATHER_MATMUL_COLUMNS && kPartRows == GATHER_MATMUL_PART_ROWS &&
                  kPartColumns == GATHER_MATMUL_PART_COLUMNS && kTileDepthBytes == GATHER_MATMUL_DEPTH_BYTES,
              "tiles must match the declaration of gather_matmul");

typedef GatherMatmulParams Params;

template <typename X, typename W, typename O>
kernel void gather_matmul(device const X* x [[buffer(GATHER_MATMUL_X)]],
                          device const W* weight [[buffer(GATHER_MATMUL_WEIGHT)]],
                          device const Index* rhs [[buffer(GATHER_MATMUL_RHS_INDICES)]],
                          device const Index* lhs [[buffer(GATHER_MATMUL_LHS_INDICES)]],
                          device const Index* starts [[buffer(GATHER_MATMUL_STARTS)]],
                          device const Index* order [[buffer(GATHER_MATMUL_ORDER)]],
                          device const Index* offsets [[buffer(GATHER_MATMUL_OFFSETS)]],
                          device O* out [[buffer(GATHER_MATMUL_OUT)]],
                          constant Params& p [[buffer(GATHER_MATMUL_PARAMS)]],
                          device MlxtsFault* fault [[buffer(GATHER_MATMUL_FAULT)]],
                          threadgroup uchar* memory [[threadgroup(0)]], uint2 group [[threadgroup_position_in_grid]],
                          uint index [[thread_index_in_threadgroup]], uint lane [[thread_index_in_simdgroup]],
                          uint simdgroup [[simdgroup_index_in_threadgroup]]) {
  const GatheredOrder<Params> ordered = {
      {p, {rhs, true}, {lhs, (p.present & GATHER_MATMUL_HAS_LHS_INDICES) != 0}},
      {order, (p.present & GATHER_MATMUL_HAS_ORDER) != 0},
      {offsets, (p.present & GATHER_MATMUL_HAS_OFFSETS) != 0}};
  const StackedWeight stack = {
      ulong(p.n) * p.k, p.matrices, p.startEnd, {starts, (p.present & GATHER_MATMUL_HAS_STARTS) != 0}};
  if (group.x == 0 && group.y == 0 && simdgroup == 0) {
    const GatherFaults codes = {GATHER_MATMUL_FAULT_RHS_INDICES, GATHER_MATMUL_FAULT_LHS_INDICES,
                                GATHER_MATMUL_FAULT_OFFSETS, GATHER_MATMUL_FAULT_ORDER};
    const FaultSearch search = {fault, lane};
    if (ordered.right(search, codes)) stack.right(search, GATHER_MATMUL_FAULT_STARTS);
  }
  const GatherMatmulScratch s = scratch_of(memory, p);
  list_rows(ordered, group.y, kTileRows, s.xRows, s.outRows, s.slot, index);
  if (stack.starts) {
    // One thread decides for all: others may write `starts` meanwhile.
    if (index == 0 && !stack.holds(s.slot[0])) s.slot[1] = 0;
    threadgroup_barrier(mem_flags::mem_threadgroup);
  }
  const uint rows = s.slot[1], n0 = group.x * kTileColumns;
  if (rows == 0) return;
  // Each thread may find an address of its own then; all are in the weight.
  weight += stack.begin(s.slot[0]);
  const ProductPart part = product_part<kTileRows, kTileColumns, kPartRows, kPartColumns>(simdgroup, rows, p.n - n0);
  Sums sums;
  fill(sums, 0.0f);
  add_products<true, X>(sums, part, ListedRows<const X>{x, p.k, s.xRows}, rows, weight, s.x, s.weight, {p.n, p.k}, n0,
                        index);
  store_rows<O>(sums, part, ListedRows<O>{out, p.n, s.outRows}, rows, n0, p.n, lane, NothingAdded());
}

#define MATMUL(x, w, o, X, W, O)                  \
  template [[host_name("gather_matmul_" #x "_" #w \
                       "_" #o)]] [[kernel]] decltype(gather_matmul<X, W, O>) gather_matmul<X, W, O>;
MLXTS_PRODUCT_VARIANTS(MATMUL)
