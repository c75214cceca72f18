#include "metal_kernel.h"
#include "slice.params.h"

using namespace metal;

// A row of the threadgroup copies a piece of a row; neighboring lanes copy neighboring elements.
template <typename T>
kernel void slice(device const T* x [[buffer(SLICE_X)]], device T* out [[buffer(SLICE_OUT)]],
                  constant SliceParams& p [[buffer(SLICE_PARAMS)]], uint2 group [[threadgroup_position_in_grid]],
                  uint2 position [[thread_position_in_threadgroup]], uint2 size [[threads_per_threadgroup]]) {
  const uint row = group.y * size.y + position.y;
  if (row >= p.rows) return;
  device const T* from = x + ulong(row) * p.dim + p.begin;  // [size]
  device T* to = out + ulong(row) * p.size;                 // [size]
  const uint first = group.x * size.x * SLICE_PER_THREAD + position.x;
  for (uint j = 0; j < SLICE_PER_THREAD; ++j) {
    const uint i = first + j * size.x;
    if (i < p.size) to[i] = from[i];
  }
}

#define SLICE(name, T) template [[host_name("slice_" name)]] [[kernel]] decltype(slice<T>) slice<T>;
SLICE("u8", uchar)
SLICE("u16", ushort)
SLICE("u32", uint)
