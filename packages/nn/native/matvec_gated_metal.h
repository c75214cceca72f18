// The gated unit of products of a few rows of x with rows of two weights.
#pragma once
#include "matvec_metal.h"
#include "metal_gated_unit.h"

namespace mlxts {

// The outputs of threadgroup `group`, for up to M rows of x; `partial` has room for both products.
template <uint M, typename X, typename W, typename O>
METAL_FUNC void gated_rows(device const X* x, device const W* gate, device const W* up, device O* out, MatvecSizes p,
                           threadgroup float* partial, uint group, uint lane, uint simdgroup) {
  const LaneSum gated = dot_lanes<M>(x, gate, p, partial, group, lane, simdgroup);
  const LaneSum by = dot_lanes<M>(x, up, p, partial + kMatvecSimdgroups * kSimd, group, lane, simdgroup);
  if (!gated.valid) return;
  out[ulong(gated.row) * p.n + gated.column] = gated_unit(O(gated.sum), O(by.sum));
}

}  // namespace mlxts
