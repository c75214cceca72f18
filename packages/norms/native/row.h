// What the norms share: the threads of a threadgroup lie in rows, `threads` of them to a row of the input. Short rows
// have one simdgroup each and need no barrier; a long row has the threadgroup for itself.
#pragma once
#include "metal_kernel.h"

namespace mlxts {

struct RowThread {
  uint index, threads;               // of the row
  uint lane, simdgroup, simdgroups;  // simdgroups of the row
  uint row;
};

METAL_FUNC RowThread row_thread(uint3 group, uint3 position, uint3 size, uint lane, uint simdgroup) {
  return {position.x, size.x, lane, simdgroup, size.x / kSimd, group.x * size.y + position.y};
}

METAL_FUNC float row_sum(float value, threadgroup float* partial, RowThread t) {
  return threadgroup_sum(value, partial, t.lane, t.simdgroup, t.simdgroups);
}

// This thread's share of the sum of squares: every `threads`-th four elements, and one of those left over.
template <typename T>
METAL_FUNC float squares(device const T* x, uint dim, RowThread t) {
  float sum = 0.0f;
  for (uint i = t.index * 4; i + 4 <= dim; i += t.threads * 4) {
    const float4 v = load4(x + i);
    sum += metal::dot(v, v);
  }
  const uint rest = dim / 4 * 4 + t.index;
  if (rest < dim) sum += float(x[rest]) * float(x[rest]);
  return sum;
}

}  // namespace mlxts
