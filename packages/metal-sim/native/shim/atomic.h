// Atomics on int and uint in device and threadgroup memory, relaxed order only.
#pragma once
#include "simd.h"

namespace metal {

enum memory_order { memory_order_relaxed };

template <typename T>
struct atomic {
  static_assert(is_same_v<T, int> || is_same_v<T, uint>, "atomics hold int or uint");
  T metal_sim_value;
};
typedef atomic<int> atomic_int;
typedef atomic<uint> atomic_uint;

METAL_SIM_INLINE void metal_sim_atomic(const volatile void* at, uint flags) {
#ifdef METAL_SIM_CHECK
  const metal_sim::Thread& self = *metal_sim::current();
  self.host->access(self, at, 4, flags | metal_sim::kAtomic, nullptr);
#else
  (void)at, (void)flags;
#endif
  metal_sim::current()->host->breathe();
}

template <typename T>
METAL_SIM_INLINE T atomic_load_explicit(const volatile atomic<T>* from, memory_order) {
  metal_sim_atomic(from, metal_sim::kRead);
  return __atomic_load_n(&from->metal_sim_value, __ATOMIC_RELAXED);
}
template <typename T>
METAL_SIM_INLINE void atomic_store_explicit(volatile atomic<T>* to, identity_t<T> value, memory_order) {
  metal_sim_atomic(to, metal_sim::kWrite);
  __atomic_store_n(&to->metal_sim_value, value, __ATOMIC_RELAXED);
}
template <typename T>
METAL_SIM_INLINE T atomic_exchange_explicit(volatile atomic<T>* at, identity_t<T> value, memory_order) {
  metal_sim_atomic(at, metal_sim::kWrite);
  return __atomic_exchange_n(&at->metal_sim_value, value, __ATOMIC_RELAXED);
}
template <typename T>
METAL_SIM_INLINE bool atomic_compare_exchange_weak_explicit(volatile atomic<T>* at, T* expected, identity_t<T> value,
                                                            memory_order, memory_order) {
  metal_sim_atomic(at, metal_sim::kWrite | metal_sim::kModify);
  return __atomic_compare_exchange_n(&at->metal_sim_value, expected, value, true, __ATOMIC_RELAXED, __ATOMIC_RELAXED);
}
#define METAL_SIM_FETCH(name, body)                                                                                    \
  template <typename T>                                                                                                \
  METAL_SIM_INLINE T atomic_fetch_##name##_explicit(volatile atomic<T>* at, identity_t<T> value, memory_order) {       \
    metal_sim_atomic(at, metal_sim::kWrite | metal_sim::kModify);                                                      \
    T old = __atomic_load_n(&at->metal_sim_value, __ATOMIC_RELAXED);                                                   \
    while (                                                                                                            \
        !__atomic_compare_exchange_n(&at->metal_sim_value, &old, T(body), true, __ATOMIC_RELAXED, __ATOMIC_RELAXED)) { \
    }                                                                                                                  \
    return old;                                                                                                        \
  }
METAL_SIM_FETCH(add, uint(old) + uint(value))
METAL_SIM_FETCH(sub, uint(old) - uint(value))
METAL_SIM_FETCH(and, old& value)
METAL_SIM_FETCH(or, old | value)
METAL_SIM_FETCH(xor, old ^ value)
METAL_SIM_FETCH(min, value < old ? value : old)
METAL_SIM_FETCH(max, old < value ? value : old)

}  // namespace metal
