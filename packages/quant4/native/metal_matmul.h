// Products with more rows of x. In a CUDA translation cuda_matmul.h takes this header's place.
#pragma once
#include "matmul_metal.h"

namespace mlxts {

template <typename X, typename S, int Bits, typename XAt, typename Scratch>
Products products_of(XAt x_at, AffineMatrix<S, Bits> w, Scratch scratch, ProductPart part, uint row0, uint m,
                     uint index) {
  return multiply<X>(x_at, w, scratch, part, row0, m, index);
}

}  // namespace mlxts
