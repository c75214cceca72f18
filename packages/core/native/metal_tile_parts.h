// How the simdgroups of a threadgroup share the outputs of a product, and where rows lie; for all headers of tiles.
#pragma once
#include "metal_kernel.h"

namespace mlxts {

// Which outputs of its threadgroup a simdgroup has: `columns` of them side by side, in as many rows as its sums have.
struct ProductPart {
  uint row, column, columns;
};

// The part of a simdgroup of a threadgroup with M × N outputs, of which `rows` × `columns` are wanted. Parts are
// R × C; where half of the rows are enough, they are half as wide, so that no simdgroup is idle.
template <uint M, uint N, uint R, uint C>
METAL_FUNC ProductPart product_part(uint simdgroup, uint rows, uint columns) {
  static_assert(M == R || M % (2 * R) == 0, "parts stand in one row, or in an even number of rows");
  const bool few = M > R && rows <= M / 2;
  const uint width = few ? C / 2 : C, across = N / width;
  const uint row = simdgroup / across * R, column = simdgroup % across * width;
  return {row, column, row < rows && column < columns ? width : 0};
}

// Rows of a matrix that lie `stride` apart.
template <typename T>
struct EvenRows {
  device T* first;
  ulong stride;

  METAL_FUNC device T* operator()(uint row) const thread { return first + row * stride; }
};

// Rows of `size` elements that a list names.
template <typename T>
struct ListedRows {
  device T* first;
  uint size;
  threadgroup const uint* list;

  METAL_FUNC device T* operator()(uint row) const thread { return first + ulong(list[row]) * size; }
};

}  // namespace mlxts
