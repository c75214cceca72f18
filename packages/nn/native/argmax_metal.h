// The first largest element of a row. Floats are compared by integer keys: a GPU's comparisons may flush subnormals.
#pragma once
#include "metal_kernel.h"

namespace mlxts {

METAL_FUNC uint bits_of(float x) { return metal::as_type<uint>(x); }
METAL_FUNC uint bits_of(half x) { return metal::as_type<ushort>(x); }
METAL_FUNC uint bits_of(bfloat x) { return metal::as_type<ushort>(x); }

template <typename T>
METAL_FUNC uint sign_bit() {
  return 1u << (8 * sizeof(T) - 1);
}
template <typename T>
METAL_FUNC uint infinity_bits() {
  return metal::is_same_v<T, float> ? 0x7f800000 : metal::is_same_v<T, half> ? 0x7c00 : 0x7f80;
}

// Keys of as many bits as T, in the order of the numbers; both zeros have the same key, NaN has 0.
template <typename T>
METAL_FUNC uint key_of(T x) {
  const uint sign = sign_bit<T>(), bits = bits_of(x), magnitude = bits & (sign - 1);
  if (magnitude > infinity_bits<T>()) return 0;
  return bits & sign ? sign - magnitude : sign + magnitude;
}

// Vectors of four elements that a thread asks for before it waits for the first of them.
constant constexpr uint kAhead = 4;

// Keys of elements i … i + 3 of n; 0 beyond the end.
template <typename T>
METAL_FUNC uint4 keys_of(device const T* x, uint i, uint n) {
  if (i + 4 <= n) {
    const metal::vec<T, 4> v = four_of(x + i);
    return uint4(key_of(v.x), key_of(v.y), key_of(v.z), key_of(v.w));
  }
  uint4 keys = uint4(0);
  for (uint j = 0; i + j < n; ++j) keys[j] = key_of(x[i + j]);
  return keys;
}

struct Largest {
  uint key, at;
};

// Among every `threads`-th vector of four elements.
template <typename T>
METAL_FUNC Largest largest_of_thread(device const T* x, uint n, uint index, uint threads) {
  Largest best = {0, 0};
  const uint step = 4 * threads;
  for (uint i = 4 * index; i < n; i += kAhead * step) {
    uint4 keys[kAhead];
    MLXTS_UNROLL for (uint u = 0; u < kAhead; ++u) keys[u] = keys_of(x, i + u * step, n);
    MLXTS_UNROLL for (uint u = 0; u < kAhead; ++u) MLXTS_UNROLL for (uint j = 0; j < 4; ++j)
      if (keys[u][j] > best.key) best = {keys[u][j], i + u * step + j};
  }
  return best;
}

METAL_FUNC Largest largest_of_simdgroup(Largest best) {
  const uint key = metal::simd_max(best.key);
  return {key, metal::simd_min(best.key == key ? best.at : 0xffffffff)};
}

// In every thread. `largest` [simdgroups, 2] has a key and an index of each simdgroup.
METAL_FUNC Largest largest_of_threadgroup(Largest best, threadgroup uint* largest, uint lane, uint simdgroup,
                                          uint simdgroups) {
  best = largest_of_simdgroup(best);
  if (lane == 0) {
    largest[2 * simdgroup] = best.key;
    largest[2 * simdgroup + 1] = best.at;
  }
  threadgroup_barrier(metal::mem_flags::mem_threadgroup);
  // Lanes beyond the last simdgroup repeat the first one's.
  const uint from = lane < simdgroups ? 2 * lane : 0;
  return largest_of_simdgroup({largest[from], largest[from + 1]});
}

}  // namespace mlxts
