// One threadgroup: some whole rows.
#include <string.h>

#include "cpu_kernel.h"
#include "slice.params.h"

using namespace mlxts;

namespace {

// All in bytes: an element may be a word of a tensor of smaller elements, and begin anywhere.
template <uint64_t kElementBytes>
void slice(const Launch& l) {
  const auto& p = l.args<SliceParams>();
  const uint64_t first = l.begin * p.rowsPerThreadgroup;
  const uint64_t last = l.end == l.threadgroups[0] ? p.rows : l.end * p.rowsPerThreadgroup;
  const uint64_t stride = p.dim * kElementBytes, size = p.size * kElementBytes;
  const unsigned char* x = l.buffer<const unsigned char>(SLICE_X) + p.begin * kElementBytes;  // [rows, stride]
  unsigned char* out = l.buffer<unsigned char>(SLICE_OUT);                                    // [rows, size]
  for (uint64_t row = first; row < last; ++row) memcpy(out + row * size, x + row * stride, size);
}

}  // namespace

MLXTS_KERNEL(slice_u8, slice<1>)
MLXTS_KERNEL(slice_u16, slice<2>)
MLXTS_KERNEL(slice_u32, slice<4>)
