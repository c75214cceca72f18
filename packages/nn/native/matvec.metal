#include "bias_metal.h"
#include "matvec.params.h"
#include "matvec_metal.h"
#include "product_variants.h"

using namespace metal;
using namespace mlxts;

static_assert(kMatvecSimdgroups == MATVEC_SIMDGROUPS && kMatvecColumns == MATVEC_SIMDGROUP_COLUMNS,
              "simdgroups must match the declaration of matvec");

template <typename X, typename W, typename O>
kernel void matvec(device const X* x [[buffer(MATVEC_X)]], device const W* weight [[buffer(MATVEC_WEIGHT)]],
                   device const X* bias [[buffer(MATVEC_BIAS)]], device O* out [[buffer(MATVEC_OUT)]],
                   constant MatvecParams& p [[buffer(MATVEC_PARAMS)]], threadgroup uchar* memory [[threadgroup(0)]],
                   uint group [[threadgroup_position_in_grid]], uint lane [[thread_index_in_simdgroup]],
                   uint simdgroup [[simdgroup_index_in_threadgroup]]) {
  threadgroup float* partial = scratch_of(memory, p).partial;
  const MatvecSizes sizes = {p.m, p.n, p.k, p.groupColumns};
  const Bias<X> added = {bias, p.present & MATVEC_HAS_BIAS, p.biasF32};
  if (p.m == 1)
    dot_rows<1>(x, weight, added, out, sizes, partial, group, lane, simdgroup);
  else
    dot_rows<MATVEC_ROWS>(x, weight, added, out, sizes, partial, group, lane, simdgroup);
}

#define MATVEC(x, w, o, X, W, O) \
  template [[host_name("matvec_" #x "_" #w "_" #o)]] [[kernel]] decltype(matvec<X, W, O>) matvec<X, W, O>;
MLXTS_PRODUCT_VARIANTS(MATVEC)
