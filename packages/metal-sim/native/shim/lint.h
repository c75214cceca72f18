// What translated text is checked against as C++ for OpenCL, where every pointer has an address space of its own: the
// vector types and functions of the simulator, and declarations of what touches memory.
#pragma once
#include "math.h"

// Types of OpenCL's own.
#define atomic_int metal_sim_atomic_int
#define atomic_uint metal_sim_atomic_uint

namespace metal_sim {
template <typename T>
__local T& threadgroup_variable();
}

namespace metal {

enum class mem_flags : uint { mem_none = 0, mem_device = 1, mem_threadgroup = 2 };
mem_flags operator|(mem_flags a, mem_flags b);
void threadgroup_barrier(mem_flags flags);
void simdgroup_barrier(mem_flags flags);

#define METAL_SIM_SAME(name) \
  template <typename T>      \
  T name(T value);
METAL_SIM_SAME(simd_sum)
METAL_SIM_SAME(simd_product)
METAL_SIM_SAME(simd_max)
METAL_SIM_SAME(simd_min)
METAL_SIM_SAME(simd_and)
METAL_SIM_SAME(simd_or)
METAL_SIM_SAME(simd_xor)
METAL_SIM_SAME(simd_broadcast_first)
METAL_SIM_SAME(simd_prefix_inclusive_sum)
METAL_SIM_SAME(simd_prefix_exclusive_sum)
METAL_SIM_SAME(simd_prefix_inclusive_product)
METAL_SIM_SAME(simd_prefix_exclusive_product)
#define METAL_SIM_MOVED(name) \
  template <typename T>       \
  T name(T value, ushort by);
METAL_SIM_MOVED(simd_broadcast)
METAL_SIM_MOVED(simd_shuffle)
METAL_SIM_MOVED(simd_shuffle_xor)
METAL_SIM_MOVED(simd_shuffle_up)
METAL_SIM_MOVED(simd_shuffle_down)
METAL_SIM_MOVED(simd_shuffle_rotate_up)
METAL_SIM_MOVED(simd_shuffle_rotate_down)

class simd_vote {
 public:
  typedef ulong vote_t;
  explicit simd_vote(vote_t votes = 0);
  explicit operator vote_t() const;
  bool all() const;
  bool any() const;
};
simd_vote simd_ballot(bool value);
simd_vote simd_active_threads_mask();
bool simd_any(bool value);
bool simd_all(bool value);
bool simd_is_first();

enum memory_order { memory_order_relaxed };
template <typename T>
struct atomic {
  T metal_sim_value;
};
typedef atomic<int> atomic_int;
typedef atomic<uint> atomic_uint;
#define METAL_SIM_IN_SPACE(space)                                                                                      \
  template <typename T>                                                                                                \
  T atomic_load_explicit(const volatile space atomic<T>* from, memory_order order);                                    \
  template <typename T>                                                                                                \
  void atomic_store_explicit(volatile space atomic<T>* to, identity_t<T> value, memory_order order);                   \
  template <typename T>                                                                                                \
  bool atomic_compare_exchange_weak_explicit(volatile space atomic<T>* at, __private T* expected, identity_t<T> value, \
                                             memory_order success, memory_order failure);
METAL_SIM_IN_SPACE(__global)
METAL_SIM_IN_SPACE(__local)
#define METAL_SIM_ATOMIC(name)                                                                          \
  template <typename T>                                                                                 \
  T atomic_##name##_explicit(volatile __global atomic<T>* at, identity_t<T> value, memory_order order); \
  template <typename T>                                                                                 \
  T atomic_##name##_explicit(volatile __local atomic<T>* at, identity_t<T> value, memory_order order);
METAL_SIM_ATOMIC(exchange)
METAL_SIM_ATOMIC(fetch_add)
METAL_SIM_ATOMIC(fetch_sub)
METAL_SIM_ATOMIC(fetch_and)
METAL_SIM_ATOMIC(fetch_or)
METAL_SIM_ATOMIC(fetch_xor)
METAL_SIM_ATOMIC(fetch_min)
METAL_SIM_ATOMIC(fetch_max)

template <typename T, int Columns, int Rows = Columns>
class simdgroup_matrix {
 public:
  typedef vec<T, 2> storage_type;
  simdgroup_matrix() = default;
  explicit simdgroup_matrix(T diagonal) {}
  __private storage_type& thread_elements() __private { return elements; }

 private:
  storage_type elements;
};
typedef simdgroup_matrix<float, 8, 8> simdgroup_float8x8;
typedef simdgroup_matrix<half, 8, 8> simdgroup_half8x8;
typedef simdgroup_matrix<bfloat, 8, 8> simdgroup_bfloat8x8;
template <typename T, int Columns, int Rows>
simdgroup_matrix<T, Columns, Rows> make_filled_simdgroup_matrix(identity_t<T> value);
#define METAL_SIM_MATRIX(space)                                                                                \
  template <typename T>                                                                                        \
  void simdgroup_load(__private simdgroup_matrix<T, 8, 8>& m, const space T* from, ulong elements_per_row = 8, \
                      ulong2 origin = ulong2(0), bool transpose = false);                                      \
  template <typename T>                                                                                        \
  void simdgroup_store(simdgroup_matrix<T, 8, 8> m, space T* to, ulong elements_per_row = 8,                   \
                       ulong2 origin = ulong2(0), bool transpose = false);
METAL_SIM_MATRIX(__global)
METAL_SIM_MATRIX(__local)
template <typename D, typename A, typename B, typename C>
void simdgroup_multiply_accumulate(__private simdgroup_matrix<D, 8, 8>& d, simdgroup_matrix<A, 8, 8> a,
                                   simdgroup_matrix<B, 8, 8> b, simdgroup_matrix<C, 8, 8> c);
template <typename D, typename A, typename B>
void simdgroup_multiply(__private simdgroup_matrix<D, 8, 8>& d, simdgroup_matrix<A, 8, 8> a,
                        simdgroup_matrix<B, 8, 8> b);

// In each address space an array's elements lie where it does.
#define METAL_SIM_ARRAY_MEMBERS(qualifiers)                             \
  qualifiers T& operator[](size_t i) qualifiers { return elements[i]; } \
  qualifiers T& front() qualifiers { return elements[0]; }              \
  qualifiers T& back() qualifiers { return elements[N - 1]; }           \
  qualifiers T* data() qualifiers { return elements; }                  \
  constexpr size_t size() qualifiers { return N; }                      \
  constexpr bool empty() qualifiers { return N == 0; }
template <typename T, size_t N>
struct array {
  T elements[N];
  METAL_SIM_ARRAY_MEMBERS(__private)
  METAL_SIM_ARRAY_MEMBERS(const __private)
  METAL_SIM_ARRAY_MEMBERS(__global)
  METAL_SIM_ARRAY_MEMBERS(const __global)
  METAL_SIM_ARRAY_MEMBERS(__local)
  METAL_SIM_ARRAY_MEMBERS(const __local)
  METAL_SIM_ARRAY_MEMBERS(const __constant)
};

}  // namespace metal
