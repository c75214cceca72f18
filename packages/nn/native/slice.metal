#include "columns_metal.h"
#include "slice.params.h"

using namespace metal;
using namespace mlxts;

// A row of the threadgroup copies a piece of a row; neighboring lanes copy neighboring elements.
template <typename T>
kernel void slice(device const T* x [[buffer(SLICE_X)]], device T* out [[buffer(SLICE_OUT)]],
                  constant SliceParams& p [[buffer(SLICE_PARAMS)]], uint2 group [[threadgroup_position_in_grid]],
                  uint2 position [[thread_position_in_threadgroup]], uint2 size [[threads_per_threadgroup]]) {
  const uint row = group.y * size.y + position.y;
  if (row >= p.rows) return;
  copy_columns<SLICE_PER_THREAD>(x + ulong(row) * p.dim + p.begin, out + ulong(row) * p.size, p.size, group.x,
                                 position.x, size.x);
}

#define SLICE(name, T) template [[host_name("slice_" name)]] [[kernel]] decltype(slice<T>) slice<T>;
SLICE("u8", uchar)
SLICE("u16", ushort)
SLICE("u32", uint)
