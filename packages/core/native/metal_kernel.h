// What the .metal files of all packages share. Metal compiles text at run time: core puts this file in its place.
#pragma once
#include <metal_stdlib>

#include "fault.h"

// Before a loop over an array that is to stay in registers.
#define MLXTS_UNROLL _Pragma("clang loop unroll(full)")

namespace mlxts {

constant constexpr uint kSimd = 32;  // lanes of a simdgroup on every GPU that core opens

// A number from a buffer that decides an address or the length of a loop. Whoever shares the buffer's memory may write it
// while a kernel runs, and a compiler may read a plain number again: each call of read_index is one read, and a kernel
// uses no value but one that it has itself checked or bounded.
typedef metal::atomic_int Index;

METAL_FUNC int read_index(device const Index* indices, ulong i) {
  return metal::atomic_load_explicit(indices + i, metal::memory_order_relaxed);
}

// The pair of the threadgroup's first thread, in every thread: what leads to a barrier must be one decision, and a number
// that two threads read may have changed between. `words` are two, and free again afterwards.
METAL_FUNC metal::uint2 threadgroup_first(metal::uint2 pair, threadgroup uint* words, uint index) {
  if (index == 0) {
    words[0] = pair.x;
    words[1] = pair.y;
  }
  threadgroup_barrier(metal::mem_flags::mem_threadgroup);
  const metal::uint2 first = metal::uint2(words[0], words[1]);
  threadgroup_barrier(metal::mem_flags::mem_threadgroup);
  return first;
}

// a · b · σ(x), where one of a and b is x or 1: where exp(x) is tiny, each takes its root, so that nothing on the way is
// below 2^-126, which a GPU may take as 0. Below -173 σ(x) counts as 0.
template <typename T>
METAL_FUNC T times_sigmoid(T a, T b, T x) {
  const T root = metal::select(metal::precise::exp(-0.5f * metal::fabs(x)), T(0.0f), x < T(-173.0f));
  const T factor = metal::select(T(1.0f), root, x < T(0.0f));
  return a * factor / (1.0f + root * root) * (b * factor);
}

// Four neighboring elements of any alignment, widened. The compiler joins the loads.
template <typename T>
METAL_FUNC float4 load4(device const T* from) {
  return float4(float(from[0]), float(from[1]), float(from[2]), float(from[3]));
}

// Four neighboring elements, rounded to nearest even.
template <typename T>
METAL_FUNC void store4(device T* to, float4 v) {
  to[0] = T(v.x);
  to[1] = T(v.y);
  to[2] = T(v.z);
  to[3] = T(v.w);
}

// What `T` keeps of four numbers.
template <typename T>
METAL_FUNC float4 round4(float4 v) {
  return float4(float(T(v.x)), float(T(v.y)), float(T(v.z)), float(T(v.w)));
}

// The sum of `value` over the threads of a threadgroup, in every thread. `partial` has a float for each simdgroup; who
// uses it twice needs a barrier between.
METAL_FUNC float threadgroup_sum(float value, threadgroup float* partial, uint lane, uint simdgroup, uint simdgroups) {
  value = metal::simd_sum(value);
  if (simdgroups == 1) return value;
  if (lane == 0) partial[simdgroup] = value;
  threadgroup_barrier(metal::mem_flags::mem_threadgroup);
  return metal::simd_sum(lane < simdgroups ? partial[lane] : 0.0f);
}

// Whether this thread is the first that has found a fault of the dispatch, in time: it alone writes the record, of the
// fault that is first in the data. So the message does not depend on the device or on what ran when.
METAL_FUNC bool claim_fault(device MlxtsFault* fault) {
  device metal::atomic_uint* code = (device metal::atomic_uint*)&fault->code;
  const metal::memory_order relaxed = metal::memory_order_relaxed;
  uint before = 0;
  // A weak exchange may fail for no reason.
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
