// What kernels with up to eight rows of x do with their products, whichever GPU makes them.
#pragma once
#include "metal_matvec.h"

namespace mlxts {

// Rounds the products of a threadgroup to rows of out that have `stride` elements; `added(r)` is added to those of row r
// of W.
template <typename X, typename S, int Bits, typename O, typename Added>
METAL_FUNC void store_product(device const X* x, uint m, AffineMatrix<S, Bits> w, device O* out, uint stride,
                              Added added, uint lane, uint simdgroup) {
  const float product = product_of(x, m, w, lane, simdgroup);
  const FewOutput at = output_of(lane, simdgroup);
  if (at.i < m && at.r < w.rows) out[at.i * stride + at.r] = O(product + added(at.r));
}

}  // namespace mlxts
