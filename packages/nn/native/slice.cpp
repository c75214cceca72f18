// One threadgroup: some whole rows, copied.
#include "cpu_kernel.h"
#include "simd.h"
#include "slice.params.h"

using namespace mlxts;

namespace {

template <typename T>
void slice(const Launch& l) {
  const auto& p = l.args<SliceParams>();
  const uint64_t first = l.begin * p.rowsPerThreadgroup;
  const uint64_t last = l.end == l.threadgroups[0] ? p.rows : l.end * p.rowsPerThreadgroup;
  const T* x = l.buffer<const T>(SLICE_X) + p.begin;  // [rows, dim]
  T* out = l.buffer<T>(SLICE_OUT);                    // [rows, size]
  for (uint64_t row = first; row < last; ++row) memcpy(out + row * p.size, x + row * p.dim, p.size * sizeof(T));
}

}  // namespace

MLXTS_KERNEL(slice_u8, slice<uint8_t>)
MLXTS_KERNEL(slice_u16, slice<uint16_t>)
MLXTS_KERNEL(slice_u32, slice<uint32_t>)
