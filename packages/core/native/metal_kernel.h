// What the .metal files of all packages share. Metal compiles text at run time: core puts this file in its place.
#pragma once
#include <metal_stdlib>

#include "fault.h"

// Before a loop over an array that is to stay in registers.
#define MLXTS_UNROLL _Pragma("clang loop unroll(full)")

namespace mlxts {

constant constexpr uint kSimd = 32;  // lanes of a simdgroup on every GPU that core opens

// Four neighbouring elements of any alignment, widened. The compiler joins the loads.
template <typename T>
METAL_FUNC float4 load4(device const T* from) {
  return float4(float(from[0]), float(from[1]), float(from[2]), float(from[3]));
}

// Four neighbouring elements, rounded to nearest even.
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
