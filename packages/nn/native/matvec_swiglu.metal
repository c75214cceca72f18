#include "matvec_gated_metal.h"
#include "matvec_swiglu.params.h"
#include "product_variants.h"

using namespace metal;
using namespace mlxts;

static_assert(kMatvecSimdgroups == MATVEC_SWIGLU_SIMDGROUPS && kMatvecColumns == MATVEC_SWIGLU_SIMDGROUP_COLUMNS,
              "simdgroups must match the declaration of matvec_swiglu");

template <typename X, typename W, typename O>
kernel void matvec_swiglu(device const X* x [[buffer(MATVEC_SWIGLU_X)]],
                          device const W* gate [[buffer(MATVEC_SWIGLU_GATE)]],
                          device const W* up [[buffer(MATVEC_SWIGLU_UP)]], device O* out [[buffer(MATVEC_SWIGLU_OUT)]],
                          constant MatvecSwigluParams& p [[buffer(MATVEC_SWIGLU_PARAMS)]],
                          threadgroup uchar* memory [[threadgroup(0)]], uint group [[threadgroup_position_in_grid]],
                          uint lane [[thread_index_in_simdgroup]], uint simdgroup [[simdgroup_index_in_threadgroup]]) {
  threadgroup float* partial = scratch_of(memory, p).partial;
  const MatvecSizes sizes = {p.m, p.n, p.k, p.groupColumns};
  if (p.m == 1)
    gated_rows<1>(x, gate, up, out, sizes, partial, group, lane, simdgroup);
  else
    gated_rows<MATVEC_SWIGLU_ROWS>(x, gate, up, out, sizes, partial, group, lane, simdgroup);
}

#define MATVEC_SWIGLU(x, w, o, X, W, O)                                                                  \
  template [[host_name("matvec_swiglu_" #x "_" #w "_" #o)]] [[kernel]] decltype(matvec_swiglu<X, W, O>) \
      matvec_swiglu<X, W, O>;
MLXTS_PRODUCT_VARIANTS(MATVEC_SWIGLU)
