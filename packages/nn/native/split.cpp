// One threadgroup: some whole rows, first all of one output, then of the next.
#include <string.h>

#include "cpu_kernel.h"
#include "split.params.h"

using namespace mlxts;

namespace {

// Columns begin … begin + size − 1 of rows first … last − 1. All in bytes but the rows.
struct Rows {
  const unsigned char* x;
  uint64_t stride, first, last;

  void copy(uint64_t begin, uint64_t size, unsigned char* out) const {
    if (size == 0) return;
    for (uint64_t row = first; row < last; ++row) memcpy(out + row * size, x + row * stride + begin, size);
  }
};

template <uint64_t kElementBytes>
void split(const Launch& l) {
  const auto& p = l.args<SplitParams>();
  const uint64_t last = l.end == l.threadgroups[0] ? p.rows : l.end * p.rowsPerThreadgroup;
  const Rows rows = {l.buffer<const unsigned char>(SPLIT_X), p.dim * kElementBytes, l.begin * p.rowsPerThreadgroup,
                     last};
  const auto copy = [&](uint64_t begin, uint64_t size, int out) {
    rows.copy(begin * kElementBytes, size * kElementBytes, l.buffer<unsigned char>(out));
  };
  copy(p.beginA, p.sizeA, SPLIT_OUT_A);
  copy(p.beginB, p.sizeB, SPLIT_OUT_B);
  copy(p.beginC, p.sizeC, SPLIT_OUT_C);
  copy(p.beginD, p.sizeD, SPLIT_OUT_D);
}

}  // namespace

MLXTS_KERNEL(split_u8, split<1>)
MLXTS_KERNEL(split_u16, split<2>)
MLXTS_KERNEL(split_u32, split<4>)
