// Shared by the .metal files of all packages. Metal compiles text at run time; core inserts this file where it is
// included.
#pragma once
#include <metal_stdlib>

#include "fault.h"

// Before a loop over an array that is to stay in registers.
#define MLXTS_UNROLL _Pragma("clang loop unroll(full)")

namespace mlxts {

constant constexpr uint kSimd = 32;  // lanes of a simdgroup on every GPU that core opens

// A number in a buffer that determines an address or the length of a loop. Others who share the buffer's memory may
// write it while a kernel runs, and a compiler may read a plain number twice. Each call of read_index is exactly one
// read; a kernel checks or bounds the value that it has read, and uses only that value.
typedef metal::atomic_int Index;

METAL_FUNC int read_index(device const Index* indices, ulong i) {
  return metal::atomic_load_explicit(indices + i, metal::memory_order_relaxed);
}

// Where a kernel waits for those that it depends on: NVIDIA's GPUs launch it while they run. Before, it reads what its
// declaration calls `early`. It waits when `known` has been computed.
template <typename = void>
METAL_FUNC void wait_for_kernels() {}
template <typename = void>
METAL_FUNC void wait_for_kernels(uint) {}

// Gives every thread the value of the threadgroup's first thread. All threads must decide alike whether they reach a
// barrier, and a number that two threads read may change between the reads. `words` has two elements, which nobody may
// write again before another barrier.
METAL_FUNC metal::uint2 threadgroup_first(metal::uint2 value, threadgroup uint* words, uint index) {
  if (index == 0) {
    words[0] = value.x;
    words[1] = value.y;
  }
  threadgroup_barrier(metal::mem_flags::mem_threadgroup);
  return metal::uint2(words[0], words[1]);
}

// a · b · σ(x), where one of a and b is x or 1. For negative x each of the two is multiplied by sqrt(exp(x)), so that
// no intermediate result falls below 2^-126, which a GPU may flush to 0. Below -173, σ(x) is taken as 0.
template <typename T>
METAL_FUNC T times_sigmoid(T a, T b, T x) {
  const T root = metal::select(metal::precise::exp(-0.5f * metal::fabs(x)), T(0.0f), x < T(-173.0f));
  const T factor = metal::select(T(1.0f), root, x < T(0.0f));
  return a * factor / (1.0f + root * root) * (b * factor);
}

// Four adjacent elements of any alignment. The compiler combines the loads.
template <typename T>
METAL_FUNC metal::vec<T, 4> four_of(device const T* from) {
  return metal::vec<T, 4>(from[0], from[1], from[2], from[3]);
}

// The same, widened.
template <typename T>
METAL_FUNC float4 load4(device const T* from) {
  return float4(float(from[0]), float(from[1]), float(from[2]), float(from[3]));
}

// Whether a thread may load four elements there at once; Metal's compiler sees to that.
template <typename T>
METAL_FUNC bool aligned_to_four(device const T*) {
  return true;
}
template <typename T>
METAL_FUNC metal::vec<T, 4> four_at_once(device const T* from) {
  return four_of(from);
}
template <typename T>
METAL_FUNC float4 load4_at_once(device const T* from) {
  return load4(from);
}

// The first `count` of four adjacent elements, zeros for the others.
template <typename T>
METAL_FUNC float4 load_some(device const T* from, uint count) {
  if (count >= 4) return load4(from);
  float4 v = float4(0.0f);
  for (uint i = 0; i < count; ++i) v[i] = float(from[i]);
  return v;
}

// Stores four adjacent elements, rounded to nearest even.
template <typename T>
METAL_FUNC void store4(device T* to, float4 v) {
  to[0] = T(v.x);
  to[1] = T(v.y);
  to[2] = T(v.z);
  to[3] = T(v.w);
}
template <typename T>
METAL_FUNC void store4_at_once(device T* to, float4 v) {
  store4(to, v);
}

// Stores four adjacent elements as they are.
template <typename T>
METAL_FUNC void store_four(device T* to, metal::vec<T, 4> v) {
  to[0] = v.x;
  to[1] = v.y;
  to[2] = v.z;
  to[3] = v.w;
}

template <typename T>
METAL_FUNC void store_four_at_once(device T* to, metal::vec<T, 4> v) {
  store_four(to, v);
}

// Four adjacent elements as they are stored, loaded and stored at once: in registers they take as much room as in memory.
template <typename T>
struct PackedFour {
  metal::vec<T, 4> elements;

  static METAL_FUNC PackedFour load(device const T* from) { return {four_at_once(from)}; }
  METAL_FUNC void store(device T* to) const thread { store_four_at_once(to, elements); }
  static METAL_FUNC PackedFour rounded(float4 v) { return {metal::vec<T, 4>(T(v.x), T(v.y), T(v.z), T(v.w))}; }
  METAL_FUNC float4 wide() const thread {
    return float4(float(elements.x), float(elements.y), float(elements.z), float(elements.w));
  }
};

// Four numbers rounded to `T` and widened again.
template <typename T>
METAL_FUNC float4 round4(float4 v) {
  return float4(float(T(v.x)), float(T(v.y)), float(T(v.z)), float(T(v.w)));
}

// What is added to the outputs of a column where there is no bias.
struct NothingAdded {
  METAL_FUNC float operator()(uint) const thread { return 0.0f; }
};

// Gives every thread the sum of `value` over its threadgroup. `partial` has a float for each simdgroup; two uses of it
// need a barrier between them.
METAL_FUNC float threadgroup_sum(float value, threadgroup float* partial, uint lane, uint simdgroup, uint simdgroups) {
  value = metal::simd_sum(value);
  if (simdgroups == 1) return value;
  if (lane == 0) partial[simdgroup] = value;
  threadgroup_barrier(metal::mem_flags::mem_threadgroup);
  return metal::simd_sum(lane < simdgroups ? partial[lane] : 0.0f);
}

// True in the first thread that calls it in a dispatch. That thread alone looks for the fault that is first in the data
// and writes the record, so that the message depends neither on the device nor on the order in which threads run.
METAL_FUNC bool claim_fault(device MlxtsFault* fault) {
  device metal::atomic_uint* code = (device metal::atomic_uint*)&fault->code;
  const metal::memory_order relaxed = metal::memory_order_relaxed;
  uint before = 0;
  // A weak exchange may fail spuriously.
  while (!metal::atomic_compare_exchange_weak_explicit(code, &before, ~0u, relaxed, relaxed))
    if (before != 0) return false;
  return true;
}
METAL_FUNC void write_fault(device MlxtsFault* fault, uint code, uint a = 0, uint b = 0, uint c = 0) {
  metal::atomic_store_explicit((device metal::atomic_uint*)&fault->code, code, metal::memory_order_relaxed);
  fault->words[0] = a;
  fault->words[1] = b;
  fault->words[2] = c;
}

// For a thread that knows the first fault in the data.
METAL_FUNC void report_fault(device MlxtsFault* fault, uint code, uint a = 0, uint b = 0, uint c = 0) {
  if (claim_fault(fault)) write_fault(fault, code, a, b, c);
}

}  // namespace mlxts
