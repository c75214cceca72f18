#include "matvec_metal.h"
#include "multi_matvec.params.h"
#include "product_variants.h"

using namespace metal;
using namespace mlxts;

static_assert(kMatvecSimdgroups == MULTI_MATVEC_SIMDGROUPS && kMatvecColumns == MULTI_MATVEC_SIMDGROUP_COLUMNS,
              "simdgroups must match the declaration of multi_matvec");

template <typename X, typename W, typename O>
kernel void multi_matvec(device const X* x [[buffer(MULTI_MATVEC_X)]], device const W* a [[buffer(MULTI_MATVEC_A)]],
                         device const W* b [[buffer(MULTI_MATVEC_B)]], device const W* c [[buffer(MULTI_MATVEC_C)]],
                         device const W* d [[buffer(MULTI_MATVEC_D)]], device O* outA [[buffer(MULTI_MATVEC_OUT_A)]],
                         device O* outB [[buffer(MULTI_MATVEC_OUT_B)]], device O* outC [[buffer(MULTI_MATVEC_OUT_C)]],
                         device O* outD [[buffer(MULTI_MATVEC_OUT_D)]],
                         constant MultiMatvecParams& p [[buffer(MULTI_MATVEC_PARAMS)]],
                         threadgroup uchar* memory [[threadgroup(0)]], uint group [[threadgroup_position_in_grid]],
                         uint lane [[thread_index_in_simdgroup]], uint simdgroup [[simdgroup_index_in_threadgroup]]) {
  threadgroup float* partial = scratch_of(memory, p).partial;
  const uint groupsA = (p.nA + p.columnsA - 1) / p.columnsA, groupsB = (p.nB + p.columnsB - 1) / p.columnsB;
  const uint groupsC = (p.nC + p.columnsC - 1) / p.columnsC;
  device const W* weight = a;
  device O* out = outA;
  MatvecSizes sizes = {p.m, p.nA, p.k, p.columnsA};
  uint place = group;
  if (place >= groupsA) {
    place -= groupsA;
    weight = b, out = outB, sizes.n = p.nB, sizes.groupColumns = p.columnsB;
    if (place >= groupsB) {
      place -= groupsB;
      weight = c, out = outC, sizes.n = p.nC, sizes.groupColumns = p.columnsC;
      if (place >= groupsC) {
        place -= groupsC;
        weight = d, out = outD, sizes.n = p.nD, sizes.groupColumns = p.columnsD;
      }
    }
  }
  if (p.m == 1)
    dot_rows<1>(x, weight, NothingAdded(), out, sizes, partial, place, lane, simdgroup);
  else
    dot_rows<MULTI_MATVEC_ROWS>(x, weight, NothingAdded(), out, sizes, partial, place, lane, simdgroup);
}

#define MULTI_MATVEC(x, w, o, X, W, O)                                                                 \
  template [[host_name("multi_matvec_" #x "_" #w "_" #o)]] [[kernel]] decltype(multi_matvec<X, W, O>) \
      multi_matvec<X, W, O>;
MLXTS_PRODUCT_VARIANTS(MULTI_MATVEC)
