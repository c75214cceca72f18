// An elementwise shader with two inputs: a threadgroup has kBlock elements, the last one `tail`, a thread four.
#pragma once
#include "metal_kernel.h"

namespace mlxts {

template <uint kBlock, typename T, typename Function>
METAL_FUNC void elementwise(device const T* a, device const T* b, device T* out, uint tail, uint group, uint groups,
                            uint index, Function f) {
  const ulong begin = ulong(group) * kBlock;
  const uint count = group + 1 == groups ? tail : kBlock;
  a += begin, b += begin, out += begin;
  uint i = 4 * index;
  if (i + 4 <= count) {
    store4(out + i, f(load4(a + i), load4(b + i)));
    return;
  }
  for (; i < count; ++i) out[i] = T(f(float4(float(a[i])), float4(float(b[i]))).x);
}

}  // namespace mlxts
