// Kernels with one planted fault each. A comment names the finding expected at its line; `metal-sim check` finds all.
#include <metal_stdlib>
#include <metal_simdgroup_matrix>
using namespace metal;

kernel void missing_barrier(device float* out [[buffer(0)]], threadgroup float* tile [[threadgroup(0)]],
                            uint i [[thread_position_in_threadgroup]]) {
  tile[i] = float(i);
  out[i] = tile[63 - i];  // expect race
}

kernel void wrong_flags(device float* out [[buffer(0)]], threadgroup float* tile [[threadgroup(0)]],
                        uint i [[thread_position_in_threadgroup]]) {
  tile[i] = float(i);
  threadgroup_barrier(mem_flags::mem_device);
  out[i] = tile[63 - i];  // expect race
}

kernel void missing_simdgroup_barrier(device float* out [[buffer(0)]], threadgroup float* tile [[threadgroup(0)]],
                                      uint i [[thread_position_in_threadgroup]]) {
  tile[i] = float(i);
  const float sum = simd_sum(tile[i]);
  out[i] = tile[i ^ 1] + sum;  // expect race
}

kernel void overwritten_too_soon(device float* out [[buffer(0)]], threadgroup float* tile [[threadgroup(0)]],
                                 uint i [[thread_position_in_threadgroup]]) {
  for (uint round = 0; round < 2; ++round) {
    tile[i] = float(i + round);  // expect race
    threadgroup_barrier(mem_flags::mem_threadgroup);
    out[i] = tile[63 - i];
  }
}

// The state is scaled by one simdgroup while another still loads it for the product before.
kernel void scaled_while_loaded(device float* out [[buffer(0)]], threadgroup float* state [[threadgroup(0)]],
                                uint i [[thread_position_in_threadgroup]],
                                uint simdgroup [[simdgroup_index_in_threadgroup]]) {
  state[i] = float(i);
  threadgroup_barrier(mem_flags::mem_threadgroup);
  simdgroup_matrix<float, 8, 8> a, b;
  simdgroup_load(a, state);
  simdgroup_multiply(b, a, a);
  if (simdgroup == 1) state[i] *= 0.5f;  // expect race
  threadgroup_barrier(mem_flags::mem_threadgroup);
  if (simdgroup == 0) simdgroup_store(b, out);
}

kernel void two_threadgroups(device float* out [[buffer(0)]], uint i [[thread_position_in_threadgroup]],
                             uint group [[threadgroup_position_in_grid]]) {
  out[i] = float(group);  // expect race
}

kernel void plain_beside_atomic(device atomic_uint* count [[buffer(0)]], device uint* out [[buffer(1)]],
                                uint i [[thread_position_in_threadgroup]]) {
  atomic_fetch_add_explicit(count, 1u, memory_order_relaxed);
  threadgroup_barrier(mem_flags::mem_threadgroup);
  out[i] = *(device uint*)count;  // expect race
}

kernel void unwritten(device float* out [[buffer(0)]], threadgroup float* tile [[threadgroup(0)]],
                      uint i [[thread_position_in_threadgroup]]) {
  if (i != 7) tile[i] = float(i);
  threadgroup_barrier(mem_flags::mem_threadgroup);
  out[i] = tile[i];  // expect uninitialized
}

kernel void counted_too_soon(device uint* out [[buffer(0)]], threadgroup atomic_uint* count [[threadgroup(0)]],
                             uint i [[thread_position_in_threadgroup]]) {
  atomic_fetch_add_explicit(count, i, memory_order_relaxed);  // expect uninitialized
  if (i == 0) atomic_store_explicit(count, 0, memory_order_relaxed);
  threadgroup_barrier(mem_flags::mem_threadgroup);
  out[i] = atomic_load_explicit(count, memory_order_relaxed);
}

kernel void past_the_end(device const float* in [[buffer(0)]], device float* out [[buffer(1)]],
                         uint i [[thread_position_in_threadgroup]]) {
  out[i] = in[i + 1];  // expect out-of-bounds
}

kernel void before_the_start(device float* out [[buffer(0)]], uint i [[thread_position_in_threadgroup]]) {
  out[int(i) - 1] = 1.0f;  // expect out-of-bounds
}

kernel void past_threadgroup_memory(device float* out [[buffer(0)]], threadgroup float* tile [[threadgroup(0)]],
                                    uint i [[thread_position_in_threadgroup]]) {
  tile[i + 1] = float(i);  // expect out-of-bounds
  threadgroup_barrier(mem_flags::mem_threadgroup);
  out[i] = i == 0 ? 0.0f : tile[i];
}

kernel void through_const(device const float* in [[buffer(0)]], device float* out [[buffer(1)]],
                          uint i [[thread_position_in_threadgroup]]) {
  ((device float*)in)[i] = float(i);  // expect read-only
  out[i] = 0.0f;
}

kernel void some_arrive(device float* out [[buffer(0)]], uint i [[thread_position_in_threadgroup]]) {
  if (i < 40) threadgroup_barrier(mem_flags::mem_device);  // expect divergent-barrier
  out[i] = 0.0f;
}

kernel void early_return(device float* out [[buffer(0)]], uint i [[thread_position_in_threadgroup]]) {
  if (i >= 50) return;
  out[i] = 0.0f;
  threadgroup_barrier(mem_flags::mem_device);  // expect divergent-barrier
}

kernel void two_barriers(device float* out [[buffer(0)]], uint i [[thread_position_in_threadgroup]]) {
  if (i < 32)
    threadgroup_barrier(mem_flags::mem_device);
  else
    threadgroup_barrier(mem_flags::mem_device);  // expect divergent-barrier
  out[i] = 0.0f;
}

kernel void half_a_simdgroup(device float* out [[buffer(0)]], uint i [[thread_position_in_threadgroup]]) {
  float v = float(i);
  if (i % 32 < 16) v = simd_sum(v);  // expect divergent-simdgroup
  threadgroup_barrier(mem_flags::mem_device);
  out[i] = v;
}

kernel void absent_lane(device float* out [[buffer(0)]], uint i [[thread_position_in_threadgroup]]) {
  if (i >= 48) return;
  out[i] = simd_shuffle(float(i), ushort(31));  // expect inactive-lane
}

kernel void partial_matrix(device float* out [[buffer(0)]], uint i [[thread_position_in_threadgroup]]) {
  if (i >= 48) return;
  simdgroup_matrix<float, 8, 8> m(1.0f);
  simdgroup_store(m, out + 64 * (i / 32));  // expect inactive-lane
}

kernel void wrong_index(device float* out [[buffer(0)]], constant uint& shift [[buffer(1)]],
                        uint i [[thread_position_in_threadgroup]]) {
  float local[4] = {1.0f, 2.0f, 3.0f, 4.0f};
  local[(i & 3) + shift] = 0.0f;  // expect array-index
  out[i] = local[i & 3];
}

kernel void wrong_alignment(device const float* in [[buffer(0)]], device float* out [[buffer(1)]],
                            uint i [[thread_position_in_threadgroup]]) {
  out[i] = ((device const float4*)(in + 1))[i / 8].x;  // expect misaligned
}

kernel void wrong_divisor(device uint* out [[buffer(0)]], uint i [[thread_position_in_threadgroup]]) {
  out[i] = 100u / (i & 7);  // expect division
}

kernel void wrong_shift(device uint* out [[buffer(0)]], uint i [[thread_position_in_threadgroup]]) {
  out[i] = 1u << i;  // expect shift
}

kernel void too_much_memory(device float* out [[buffer(0)]], uint i [[thread_position_in_threadgroup]]) {
  threadgroup float tile[9000];  // expect threadgroup-memory
  tile[i] = float(i);
  out[i] = tile[i];
}

kernel void wrong_matrix_alignment(device const float* in [[buffer(0)]], device float* out [[buffer(1)]],
                                   uint i [[thread_position_in_threadgroup]]) {
  simdgroup_matrix<float, 8, 8> m;
  simdgroup_load(m, (device const float*)((device const char*)in + 2), 4);  // expect misaligned
  if (i < 32) simdgroup_store(m, out, 8);
}
