#include "columns_metal.h"
#include "split.params.h"

using namespace metal;
using namespace mlxts;

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
  const uint output = group.z;
  const uint begin = output == 0 ? p.beginA : output == 1 ? p.beginB : output == 2 ? p.beginC : p.beginD;
  const uint size = output == 0 ? p.sizeA : output == 1 ? p.sizeB : output == 2 ? p.sizeC : p.sizeD;
  device T* const out = output == 0 ? out_a : output == 1 ? out_b : output == 2 ? out_c : out_d;
  copy_columns<SPLIT_PER_THREAD>(x + ulong(row) * p.dim + begin, out + ulong(row) * size, size, group.x, position.x,
                                 threads.x);
}

#define SPLIT(name, T) template [[host_name("split_" name)]] [[kernel]] decltype(split<T>) split<T>;
SPLIT("u8", uchar)
SPLIT("u16", ushort)
SPLIT("u32", uint)
