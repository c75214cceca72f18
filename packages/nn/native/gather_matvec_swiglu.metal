// A row of threadgroups has a pair: its few rows of x against the gate and up matrices that it has chosen.
#include "gather_matvec_swiglu.params.h"
#include "matvec_gated_metal.h"
#include "product_variants.h"
#include "stacked_weight.h"

using namespace metal;
using namespace mlxts;

static_assert(kMatvecSimdgroups == GATHER_MATVEC_SWIGLU_SIMDGROUPS &&
                  kMatvecColumns == GATHER_MATVEC_SWIGLU_SIMDGROUP_COLUMNS,
              "simdgroups must match the declaration of gather_matvec_swiglu");

template <typename X, typename W, typename O>
kernel void gather_matvec_swiglu(device const X* x [[buffer(GATHER_MATVEC_SWIGLU_X)]],
                                 device const W* gate [[buffer(GATHER_MATVEC_SWIGLU_GATE)]],
                                 device const W* up [[buffer(GATHER_MATVEC_SWIGLU_UP)]],
                                 device const Index* rhs [[buffer(GATHER_MATVEC_SWIGLU_RHS_INDICES)]],
                                 device const Index* lhs [[buffer(GATHER_MATVEC_SWIGLU_LHS_INDICES)]],
                                 device const Index* gateStarts [[buffer(GATHER_MATVEC_SWIGLU_GATE_STARTS)]],
                                 device const Index* upStarts [[buffer(GATHER_MATVEC_SWIGLU_UP_STARTS)]],
                                 device O* out [[buffer(GATHER_MATVEC_SWIGLU_OUT)]],
                                 constant GatherMatvecSwigluParams& p [[buffer(GATHER_MATVEC_SWIGLU_PARAMS)]],
                                 device MlxtsFault* fault [[buffer(GATHER_MATVEC_SWIGLU_FAULT)]],
                                 threadgroup uchar* memory [[threadgroup(0)]],
                                 uint2 group [[threadgroup_position_in_grid]],
                                 uint lane [[thread_index_in_simdgroup]],
                                 uint simdgroup [[simdgroup_index_in_threadgroup]]) {
  const GatheredPairs<GatherMatvecSwigluParams> pairs = {
      p, {rhs, true}, {lhs, (p.present & GATHER_MATVEC_SWIGLU_HAS_LHS_INDICES) != 0}};
  const ulong size = ulong(p.n) * p.k;
  const StackedWeight gates = {
      size, p.matrices, p.gateEnd, {gateStarts, (p.present & GATHER_MATVEC_SWIGLU_HAS_GATE_STARTS) != 0}};
  const StackedWeight ups = {
      size, p.matrices, p.upEnd, {upStarts, (p.present & GATHER_MATVEC_SWIGLU_HAS_UP_STARTS) != 0}};
  if (group.x == 0 && group.y == 0 && simdgroup == 0) {
    const GatherFaults codes = {GATHER_MATVEC_SWIGLU_FAULT_RHS_INDICES, GATHER_MATVEC_SWIGLU_FAULT_LHS_INDICES, 0, 0};
    const FaultSearch search = {fault, lane};
    if (pairs.right(search, codes) && gates.right(search, GATHER_MATVEC_SWIGLU_FAULT_GATE_STARTS))
      ups.right(search, GATHER_MATVEC_SWIGLU_FAULT_UP_STARTS);
  }
  const GatherMatvecSwigluScratch s = scratch_of(memory, p);
  const uint matrix = pairs.matrix(group.y);  // read once: both products have the same matrix
  if (gates.starts) {
    // One thread decides for all: others may write the starts meanwhile.
    if (simdgroup == 0 && lane == 0) s.held[0] = gates.holds(matrix) && ups.holds(matrix);
    threadgroup_barrier(mem_flags::mem_threadgroup);
    if (!s.held[0]) return;
  }
  x += ulong(pairs.left(group.y)) * p.m * p.k;
  gate += gates.begin(matrix);
  up += ups.begin(matrix);
  out += ulong(group.y) * p.m * p.n;
  const MatvecSizes sizes = {p.m, p.n, p.k, p.groupColumns};
  if (p.m == 1)
    gated_rows<1>(x, gate, up, out, sizes, s.partial, group.x, lane, simdgroup);
  else
    gated_rows<GATHER_MATVEC_SWIGLU_ROWS>(x, gate, up, out, sizes, s.partial, group.x, lane, simdgroup);
}

#define MATVEC_SWIGLU(x, w, o, X, W, O)                                                                              \
  template [[host_name("gather_matvec_swiglu_" #x "_" #w "_" #o)]] [[kernel]] decltype(gather_matvec_swiglu<X, W, O>) \
      gather_matvec_swiglu<X, W, O>;
MLXTS_PRODUCT_VARIANTS(MATVEC_SWIGLU)
