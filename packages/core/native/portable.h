// For headers that both C++ and Metal compile: one name for what the two call differently.
#pragma once
#ifdef __METAL_VERSION__
#include "metal_kernel.h"

#define MLXTS_FUNC METAL_FUNC
#define MLXTS_PARAMS constant  // what a kernel's params are: MLXTS_PARAMS P& p
#define MLXTS_CONSTANT constant constexpr

namespace mlxts {

// A number of tokens, heads, chunks, or a position among them; a position among the elements of a tensor.
typedef uint Count;
typedef ulong Offset;

// Numbers from a buffer that decide addresses or the lengths of loops: see read_index. `present` is false for an
// optional buffer that is absent.
struct Indices {
  device const Index* first;
  bool present;

  explicit operator bool() const { return present; }
  int read(uint i) const { return read_index(first, i); }
};

// How a kernel looks for the first fault in its data: the lanes of a simdgroup look at every 32nd number each.
struct FaultSearch {
  device MlxtsFault* fault;
  uint lane;

  uint begin() const { return lane; }
  uint step() const { return kSimd; }

  // Reports the fault of the lane whose `place` is the least, ~0 for none. Whether no lane has found one.
  bool none(uint place, uint code, uint a, uint b) const {
    const uint first = metal::simd_min(place);
    if (first == ~0u) return true;
    if (place == first) report_fault(fault, code, a, b);
    return false;
  }
};

// The same by a whole threadgroup, each of whose simdgroups has a number in `least`.
struct ThreadgroupFaultSearch {
  device MlxtsFault* fault;
  threadgroup uint* least;
  uint index, threads;

  uint begin() const { return index; }
  uint step() const { return threads; }
  bool none(uint place, uint code, uint a, uint b) const {
    const uint own = metal::simd_min(place);
    if (index % kSimd == 0) least[index / kSimd] = own;
    threadgroup_barrier(metal::mem_flags::mem_threadgroup);
    uint first = ~0u;
    for (uint i = 0; i < threads / kSimd; ++i) first = metal::min(first, least[i]);
    threadgroup_barrier(metal::mem_flags::mem_threadgroup);
    if (first == ~0u) return true;
    if (place == first) report_fault(fault, code, a, b);
    return false;
  }
};

}  // namespace mlxts
#else
#include "cpu_kernel.h"

#define MLXTS_FUNC inline __attribute__((always_inline))
#define MLXTS_PARAMS const
#define MLXTS_CONSTANT constexpr

namespace mlxts {

typedef size_t Count;
typedef size_t Offset;

// A CPU kernel looks at all numbers itself.
struct FaultSearch {
  const Launch& launch;

  FaultSearch(const Launch& launch) : launch(launch) {}
  size_t begin() const { return 0; }
  size_t step() const { return 1; }
  bool none(size_t place, uint32_t code, uint32_t a, uint32_t b) const {
    if (place == ~size_t(0)) return true;
    launch.fail(code, a, b);
    return false;
  }
};

}  // namespace mlxts
#endif
