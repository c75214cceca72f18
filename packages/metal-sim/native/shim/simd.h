// Barriers and simdgroup functions: every lane leaves its value, waits for the others, and reads what it needs.
#pragma once
#include "math.h"
// Behind the types it uses.
#include "../module.h"

namespace metal_sim {

METAL_SIM_INLINE uintptr_t stack_pointer() {
  uintptr_t at;
#if defined(__x86_64__)
  asm("movq %%rsp, %0" : "=r"(at));
#elif defined(__aarch64__)
  asm("mov %0, sp" : "=r"(at));
#else
  at = uintptr_t(__builtin_frame_address(0));
#endif
  return at;
}

/** The thread that runs: found by the stack it runs on, so that a module needs no storage for each OS thread. */
METAL_SIM_INLINE Thread* current() {
  const uintptr_t at = stack_pointer();
  return reinterpret_cast<Thread**>(at & ~(kStacksBytes - 1))[at % kStacksBytes / kStackBytes];
}

/** Whether memory is a thread's variables or the engine's own. */
METAL_SIM_INLINE bool on_stacks(const volatile void* at) {
  return ((stack_pointer() ^ uintptr_t(at)) & ~(kStacksBytes - 1)) == 0;
}

#define METAL_SIM_HERE const char *file = __builtin_FILE(), uint32_t line = __builtin_LINE()

template <typename T>
METAL_SIM_INLINE void put(unsigned char* to, const T& value) {
  static_assert(sizeof(T) <= kSlotBytes, "a simdgroup exchanges scalars and vectors");
  __builtin_memcpy(to, &value, sizeof(T));
}
template <typename T>
METAL_SIM_INLINE T get(const unsigned char* from) {
  T value;
  __builtin_memcpy(&value, from, sizeof(T));
  return value;
}

/** One lane's view of a completed exchange. */
template <typename T>
struct Lanes {
  const Exchange& exchange;
  uint32_t phase;
  uint32_t lane;
  Site site;
  METAL_SIM_INLINE bool active(uint32_t of) const { return of < kSimdgroupSize && (exchange.active[phase] >> of) & 1; }
  /** The value of lane `of`; of one that takes no part, undefined: poison. */
  METAL_SIM_INLINE T operator()(uint32_t of) const {
    if (active(of)) return get<T>(exchange.slot[phase][of]);
    current()->host->undefined(Undefined::kLane, site, of);
    T poison;
    __builtin_memset(&poison, 0xff, sizeof(T));
    return poison;
  }
};

template <typename T>
METAL_SIM_INLINE Lanes<T> exchange(T value, const char* file, uint32_t line, const char* operation,
                                   void (*last)(Exchange&, uint32_t) = nullptr) {
  Thread* self = current();
  Exchange& shared = *self->exchange;
  const uint32_t phase = self->phase++ & 1, lane = self->thread_index_in_simdgroup;
  put(shared.slot[phase][lane], value);
  const Site site{file, line, operation};
  self->host->simdgroup_rendezvous(0, site, last, phase);
  return {shared, phase, lane, site};
}

/** Reduces pairwise: lane i with lane i + 16, then + 8, 4, 2, 1; lanes that take no part are left out. */
template <typename T, typename F>
__attribute__((nodebug, no_sanitize("thread"))) void reduce(Exchange& shared, uint32_t phase) {
  T value[kSimdgroupSize];
  uint32_t have = shared.active[phase];
  for (uint32_t i = 0; i < kSimdgroupSize; ++i) value[i] = get<T>(shared.slot[phase][i]);
  if (have == 0xffffffffu) {
    for (uint32_t step = 16; step; step >>= 1)
      for (uint32_t i = 0; i < step; ++i) value[i] = F()(value[i], value[i + step]);
  } else {
    for (uint32_t step = 16; step; step >>= 1)
      for (uint32_t i = 0; i < step; ++i) {
        const bool mine = (have >> i) & 1, other = (have >> (i + step)) & 1;
        if (mine && other) value[i] = F()(value[i], value[i + step]);
        if (!mine && other) value[i] = value[i + step], have |= 1u << i;
      }
  }
  put(shared.result[phase], value[0]);
}
template <typename F, typename T>
METAL_SIM_INLINE T reduced(T value, const char* file, uint32_t line, const char* operation) {
  const auto lanes = exchange(value, file, line, operation, reduce<T, F>);
  return get<T>(lanes.exchange.result[lanes.phase]);
}

#define METAL_SIM_FUNCTOR(name, body)               \
  struct name {                                     \
    template <typename T>                           \
    METAL_SIM_INLINE T operator()(T a, T b) const { \
      return body;                                  \
    }                                               \
  };
METAL_SIM_FUNCTOR(Sum, T(a + b))
METAL_SIM_FUNCTOR(Product, T(a* b))
METAL_SIM_FUNCTOR(Largest, metal::max(a, b))
METAL_SIM_FUNCTOR(Smallest, metal::min(a, b))
METAL_SIM_FUNCTOR(And, T(a& b))
METAL_SIM_FUNCTOR(Or, T(a | b))
METAL_SIM_FUNCTOR(Xor, T(a ^ b))

}  // namespace metal_sim

namespace metal {

enum class mem_flags : uint { mem_none = 0, mem_device = 1, mem_threadgroup = 2 };
METAL_SIM_INLINE constexpr mem_flags operator|(mem_flags a, mem_flags b) { return mem_flags(uint(a) | uint(b)); }

METAL_SIM_INLINE void threadgroup_barrier(mem_flags flags, METAL_SIM_HERE) {
  metal_sim::current()->host->threadgroup_barrier(uint(flags), {file, line, "threadgroup_barrier"});
}
METAL_SIM_INLINE void simdgroup_barrier(mem_flags flags, METAL_SIM_HERE) {
  metal_sim::current()->host->simdgroup_rendezvous(uint(flags), {file, line, "simdgroup_barrier"}, nullptr, 2);
}

#define METAL_SIM_REDUCE(name, functor)                                      \
  template <typename T>                                                      \
  METAL_SIM_INLINE T name(T value, METAL_SIM_HERE) {                         \
    return metal_sim::reduced<metal_sim::functor>(value, file, line, #name); \
  }
METAL_SIM_REDUCE(simd_sum, Sum)
METAL_SIM_REDUCE(simd_product, Product)
METAL_SIM_REDUCE(simd_max, Largest)
METAL_SIM_REDUCE(simd_min, Smallest)
METAL_SIM_REDUCE(simd_and, And)
METAL_SIM_REDUCE(simd_or, Or)
METAL_SIM_REDUCE(simd_xor, Xor)

// `of` may use `lanes`, `value` and `by`.
#define METAL_SIM_SHUFFLE(name, of)                                   \
  template <typename T>                                               \
  METAL_SIM_INLINE T name(T value, ushort by, METAL_SIM_HERE) {       \
    const auto lanes = metal_sim::exchange(value, file, line, #name); \
    return of;                                                        \
  }
METAL_SIM_SHUFFLE(simd_broadcast, lanes(by))
METAL_SIM_SHUFFLE(simd_shuffle, lanes(by))
METAL_SIM_SHUFFLE(simd_shuffle_xor, lanes(lanes.lane ^ by))
METAL_SIM_SHUFFLE(simd_shuffle_up, lanes.lane < by ? value : lanes(lanes.lane - by))
METAL_SIM_SHUFFLE(simd_shuffle_down, lanes.lane + by >= metal_sim::kSimdgroupSize ? value : lanes(lanes.lane + by))
METAL_SIM_SHUFFLE(simd_shuffle_rotate_up, lanes((lanes.lane - by) & 31))
METAL_SIM_SHUFFLE(simd_shuffle_rotate_down, lanes((lanes.lane + by) & 31))

template <typename T>
METAL_SIM_INLINE T simd_broadcast_first(T value, METAL_SIM_HERE) {
  const auto lanes = metal_sim::exchange(value, file, line, "simd_broadcast_first");
  return lanes(uint(__builtin_ctz(lanes.exchange.active[lanes.phase])));
}

#define METAL_SIM_PREFIX(name, op, first, until)                      \
  template <typename T>                                               \
  METAL_SIM_INLINE T name(T value, METAL_SIM_HERE) {                  \
    const auto lanes = metal_sim::exchange(value, file, line, #name); \
    T total = T(first);                                               \
    for (uint i = 0; i until lanes.lane; ++i)                         \
      if (lanes.active(i)) total = T(total op lanes(i));              \
    return total;                                                     \
  }
METAL_SIM_PREFIX(simd_prefix_inclusive_sum, +, 0, <=)
METAL_SIM_PREFIX(simd_prefix_exclusive_sum, +, 0, <)
METAL_SIM_PREFIX(simd_prefix_inclusive_product, *, 1, <=)
METAL_SIM_PREFIX(simd_prefix_exclusive_product, *, 1, <)

/** Lanes as bits. */
class simd_vote {
 public:
  typedef ulong vote_t;
  METAL_SIM_INLINE explicit constexpr simd_vote(vote_t v = 0) : votes(v) {}
  METAL_SIM_INLINE explicit constexpr operator vote_t() const { return votes; }
  METAL_SIM_INLINE constexpr bool all() const { return votes == 0xfffffffful; }
  METAL_SIM_INLINE constexpr bool any() const { return votes != 0; }

 private:
  vote_t votes;
};

METAL_SIM_INLINE uint metal_sim_ballot(bool value, const char* file, uint line, const char* operation, uint& active) {
  const auto lanes = metal_sim::exchange(uint(value), file, line, operation);
  active = lanes.exchange.active[lanes.phase];
  uint votes = 0;
  for (uint i = 0; i < metal_sim::kSimdgroupSize; ++i)
    if (lanes.active(i)) votes |= lanes(i) << i;
  return votes;
}
METAL_SIM_INLINE simd_vote simd_ballot(bool value, METAL_SIM_HERE) {
  uint active;
  return simd_vote(metal_sim_ballot(value, file, line, "simd_ballot", active));
}
METAL_SIM_INLINE bool simd_any(bool value, METAL_SIM_HERE) {
  uint active;
  return metal_sim_ballot(value, file, line, "simd_any", active) != 0;
}
METAL_SIM_INLINE bool simd_all(bool value, METAL_SIM_HERE) {
  uint active;
  return metal_sim_ballot(value, file, line, "simd_all", active) == active;
}
METAL_SIM_INLINE simd_vote simd_active_threads_mask(METAL_SIM_HERE) {
  uint active;
  metal_sim_ballot(true, file, line, "simd_active_threads_mask", active);
  return simd_vote(active);
}
METAL_SIM_INLINE bool simd_is_first(METAL_SIM_HERE) {
  uint active;
  metal_sim_ballot(true, file, line, "simd_is_first", active);
  return metal_sim::current()->thread_index_in_simdgroup == uint(__builtin_ctz(active));
}

}  // namespace metal
