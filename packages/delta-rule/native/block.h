// 8 × 8 blocks of f32 that a simdgroup holds in registers, as operands and sums of products.
#pragma once
#include "metal_kernel.h"
#include "metal_matrix.h"

namespace mlxts {

typedef metal::simdgroup_float8x8 Block;

// A lane's elements of a block: [row, column] and [row, column + 1], column even.
struct BlockLane {
  uint row, column;
};

METAL_FUNC BlockLane block_lane(uint lane) { return {matrix_row(lane), matrix_column(lane)}; }

METAL_FUNC Block block(float first, float second) {
  Block b;
  b.thread_elements()[0] = first;
  b.thread_elements()[1] = second;
  return b;
}

METAL_FUNC Block scaled(Block b, float factor) {
  return block(b.thread_elements()[0] * factor, b.thread_elements()[1] * factor);
}

// A block of rows that lie `stride`, an even number, apart in threadgroup memory; `from` is aligned to two elements.
template <typename T>
METAL_FUNC Block load_block(threadgroup const T* from, uint stride, BlockLane at) {
  const metal::vec<T, 2> two = *(threadgroup const metal::vec<T, 2>*)(from + at.row * stride + at.column);
  return block(float(two[0]), float(two[1]));
}

// The same, transposed.
template <typename T>
METAL_FUNC Block load_transposed(threadgroup const T* from, uint stride, BlockLane at) {
  threadgroup const T* column = from + at.column * stride + at.row;
  return block(float(column[0]), float(column[stride]));
}

// sum += a · b
METAL_FUNC void multiply_add(thread Block& sum, Block a, Block b) {
  metal::simdgroup_multiply_accumulate(sum, a, b, sum);
}

}  // namespace mlxts
