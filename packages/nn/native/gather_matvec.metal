// A row of threadgroups has a pair: its few rows of x against the matrix that it has chosen.
#include "gather_matvec.params.h"
#include "matvec_metal.h"
#include "product_variants.h"
#include "stacked_weight.h"

using namespace metal;
using namespace mlxts;

static_assert(kMatvecSimdgroups == GATHER_MATVEC_SIMDGROUPS && kMatvecColumns == GATHER_MATVEC_SIMDGROUP_COLUMNS,
              "simdgroups must match the declaration of gather_matvec");

template <typename X, typename W, typename O>
kernel void gather_matvec(device const X* x [[buffer(GATHER_MATVEC_X)]],
                          device const W* weight [[buffer(GATHER_MATVEC_WEIGHT)]],
                          device const Index* rhs [[buffer(GATHER_MATVEC_RHS_INDICES)]],
                          device const Index* lhs [[buffer(GATHER_MATVEC_LHS_INDICES)]],
                          device const Index* starts [[buffer(GATHER_MATVEC_STARTS)]],
                          device O* out [[buffer(GATHER_MATVEC_OUT)]],
                          constant GatherMatvecParams& p [[buffer(GATHER_MATVEC_PARAMS)]],
                          device MlxtsFault* fault [[buffer(GATHER_MATVEC_FAULT)]],
                          threadgroup uchar* memory [[threadgroup(0)]], uint2 group [[threadgroup_position_in_grid]],
                          uint lane [[thread_index_in_simdgroup]],
                          uint simdgroup [[simdgroup_index_in_threadgroup]]) {
  const GatheredPairs<GatherMatvecParams> pairs = {
      p, {rhs, true}, {lhs, (p.present & GATHER_MATVEC_HAS_LHS_INDICES) != 0}};
  const StackedWeight stack = {
      ulong(p.n) * p.k, p.matrices, p.startEnd, {starts, (p.present & GATHER_MATVEC_HAS_STARTS) != 0}};
  if (group.x == 0 && group.y == 0 && simdgroup == 0) {
    const GatherFaults codes = {GATHER_MATVEC_FAULT_RHS_INDICES, GATHER_MATVEC_FAULT_LHS_INDICES, 0, 0};
    const FaultSearch search = {fault, lane};
    if (pairs.right(search, codes)) stack.right(search, GATHER_MATVEC_FAULT_STARTS);
  }
  const GatherMatvecScratch s = scratch_of(memory, p);
  const uint matrix = pairs.matrix(group.y);
  if (stack.starts) {
    // One thread decides for all: others may write `starts` meanwhile.
    if (simdgroup == 0 && lane == 0) s.held[0] = stack.holds(matrix);
    threadgroup_barrier(mem_flags::mem_threadgroup);
    if (!s.held[0]) return;
  }
  x += ulong(pairs.left(group.y)) * p.m * p.k;
  weight += stack.begin(matrix);
  out += ulong(group.y) * p.m * p.n;
  const MatvecSizes sizes = {p.m, p.n, p.k, p.groupColumns};
  if (p.m == 1)
    dot_rows<1>(x, weight, NothingAdded(), out, sizes, s.partial, group.x, lane, simdgroup);
  else
    dot_rows<GATHER_MATVEC_ROWS>(x, weight, NothingAdded(), out, sizes, s.partial, group.x, lane, simdgroup);
}

#define MATVEC(x, w, o, X, W, O)                  \
  template [[host_name("gather_matvec_" #x "_" #w \
                       "_" #o)]] [[kernel]] decltype(gather_matvec<X, W, O>) gather_matvec<X, W, O>;
MLXTS_PRODUCT_VARIANTS(MATVEC)
