#include "metal_kernel.h"
#include "split.params.h"

using namespace metal;

// The threadgroups of a layer have one output. A row of the threadgroup copies a piece of a row; neighboring lanes copy
// neighboring elements.
template <typename T>
kernel void split(device const T* x [[buffer(SPLIT_X)]], device T* out_a [[buffer(SPLIT_OUT_A)]],
                  device T* out_b [[buffer(SPLIT_OUT_B)]], device T* out_c [[buffer(SPLIT_OUT_C)]],
                  device T* out_d [[buffer(SPLIT_OUT_D)]], constant SplitParams& p [[buffer(SPLIT_PARAMS)]],
                  uint3 group [[threadgroup_position_in_grid]], uint3 position [[thread_position_in_threadgroup]],
                  uint3 threads [[threads_per_threadgroup]]) {
  const uint row = group.y * threads.y + position.y;
  if (row >= p.rows) return;
  const uint begins[4] = {p.beginA, p.beginB, p.beginC, p.beginD};
  const uint sizes[4] = {p.sizeA, p.sizeB, p.sizeC, p.sizeD};
  device T* const outs[4] = {out_a, out_b, out_c, out_d};
  const uint size = sizes[group.z];
  device const T* from = x + ulong(row) * p.dim + begins[group.z];  // [size]
  device T* to = outs[group.z] + ulong(row) * size;                 // [size]
  const uint first = group.x * threads.x * SPLIT_PER_THREAD + position.x;
  for (uint j = 0; j < SPLIT_PER_THREAD; ++j) {
    const uint i = first + j * threads.x;
    if (i < size) to[i] = from[i];
  }
}

#define SPLIT(name, T) template [[host_name("split_" name)]] [[kernel]] decltype(split<T>) split<T>;
SPLIT("u8", uchar)
SPLIT("u16", ushort)
SPLIT("u32", uint)
