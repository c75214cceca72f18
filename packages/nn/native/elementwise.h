// An elementwise kernel with two inputs: a threadgroup has kBlock elements, the last one `tail`.
#pragma once
#include "cpu_kernel.h"
#include "simd.h"

namespace mlxts {

template <uint64_t kBlock, typename T, typename Function>
MLXTS_INLINE void elementwise(const Launch& l, const T* a, const T* b, T* out, uint64_t tail, Function f) {
  const uint64_t begin = l.begin * kBlock;
  const uint64_t end = l.end == l.threadgroups[0] ? (l.end - 1) * kBlock + tail : l.end * kBlock;
  a += begin, b += begin, out += begin;
  for_lanes(
      end - begin, [&](size_t i) { store(out + i, f(load(a + i), load(b + i))); },
      [&](size_t i, int n) { store_partial(out + i, f(load_partial(a + i, n), load_partial(b + i, n)), n); });
}

}  // namespace mlxts
