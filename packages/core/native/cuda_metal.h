// The words of the Metal Shading Language that kernels use, in CUDA C++: what <metal_stdlib> and
// <metal_simdgroup_matrix> mean in a translation by `metal-sim cuda`. All of it and the translated text stand in
// namespace msl, where names of CUDA's own are hidden. Functions of f32 are as precise as Metal's precise ones.
#pragma once
#include <cuda_machine.h>

namespace msl {

typedef signed char int8_t;
typedef uchar uint8_t;
typedef short int16_t;
typedef ushort uint16_t;
typedef int int32_t;
typedef uint uint32_t;
typedef long int64_t;
typedef ulong uint64_t;
typedef unsigned long size_t;
typedef long ptrdiff_t;
typedef ulong uintptr_t;

// 16-bit floats. As in MSL, an operation of two of them is rounded, and one with a float is of floats.
#define MLXTS_FLOAT16(T, Other)                                                         \
  struct T {                                                                            \
    ushort raw;                                                                         \
    T() = default;                                                                      \
    MLXTS_CUDA_FUNC T(float x) : raw(rounded(x)) {}                                     \
    MLXTS_CUDA_FUNC T(int x) : T(float(x)) {}                                           \
    MLXTS_CUDA_FUNC T(uint x) : T(float(x)) {}                                          \
    MLXTS_CUDA_FUNC explicit T(Other x);                                                \
    MLXTS_CUDA_FUNC operator float() const { return widened(raw); }                     \
    template <typename U>                                                               \
    MLXTS_CUDA_FUNC T& operator+=(U b) {                                                \
      return *this = T(*this + b);                                                      \
    }                                                                                   \
    template <typename U>                                                               \
    MLXTS_CUDA_FUNC T& operator-=(U b) {                                                \
      return *this = T(*this - b);                                                      \
    }                                                                                   \
    template <typename U>                                                               \
    MLXTS_CUDA_FUNC T& operator*=(U b) {                                                \
      return *this = T(*this * b);                                                      \
    }                                                                                   \
    template <typename U>                                                               \
    MLXTS_CUDA_FUNC T& operator/=(U b) {                                                \
      return *this = T(*this / b);                                                      \
    }                                                                                   \
    friend MLXTS_CUDA_FUNC T operator/(T a, T b) { return T(float(a) / float(b)); }     \
    friend MLXTS_CUDA_FUNC T operator-(T a) { return of_raw(ushort(a.raw ^ 0x8000u)); } \
    static MLXTS_CUDA_FUNC T of_raw(ushort raw) {                                       \
      T x;                                                                              \
      x.raw = raw;                                                                      \
      return x;                                                                         \
    }                                                                                   \
                                                                                        \
   private:                                                                             \
    static MLXTS_CUDA_FUNC ushort rounded(float x);                                     \
    static MLXTS_CUDA_FUNC float widened(ushort raw);                                   \
  };
#define MLXTS_FLOAT16_WITH(T, op)                                           \
  MLXTS_CUDA_FUNC float operator op(T a, float b) { return float(a) op b; } \
  MLXTS_CUDA_FUNC float operator op(float a, T b) { return a op float(b); } \
  MLXTS_CUDA_FUNC T operator op(T a, int b) { return a op T(b); }           \
  MLXTS_CUDA_FUNC T operator op(int a, T b) { return T(a) op b; }           \
  MLXTS_CUDA_FUNC T operator op(T a, uint b) { return a op T(b); }          \
  MLXTS_CUDA_FUNC T operator op(uint a, T b) { return T(a) op b; }

struct half;
struct bfloat;
MLXTS_FLOAT16(half, bfloat)
MLXTS_FLOAT16(bfloat, half)
MLXTS_CUDA_FUNC ushort half::rounded(float x) { return machine::f16_of(x); }
MLXTS_CUDA_FUNC float half::widened(ushort raw) { return machine::of_f16(raw); }
MLXTS_CUDA_FUNC ushort bfloat::rounded(float x) { return machine::bf16_of(x); }
MLXTS_CUDA_FUNC float bfloat::widened(ushort raw) { return machine::bits<float>(uint(raw) << 16); }
MLXTS_CUDA_FUNC half::half(bfloat x) : half(float(x)) {}
MLXTS_CUDA_FUNC bfloat::bfloat(half x) : bfloat(float(x)) {}
MLXTS_CUDA_FUNC half operator+(half a, half b) { return half::of_raw(machine::f16_add(a.raw, b.raw)); }
MLXTS_CUDA_FUNC half operator-(half a, half b) { return half::of_raw(machine::f16_subtract(a.raw, b.raw)); }
MLXTS_CUDA_FUNC half operator*(half a, half b) { return half::of_raw(machine::f16_multiply(a.raw, b.raw)); }
MLXTS_CUDA_FUNC bfloat operator+(bfloat a, bfloat b) { return bfloat(float(a) + float(b)); }
MLXTS_CUDA_FUNC bfloat operator-(bfloat a, bfloat b) { return bfloat(float(a) - float(b)); }
MLXTS_CUDA_FUNC bfloat operator*(bfloat a, bfloat b) { return bfloat(float(a) * float(b)); }
MLXTS_FLOAT16_WITH(half, +)
MLXTS_FLOAT16_WITH(half, -)
MLXTS_FLOAT16_WITH(half, *)
MLXTS_FLOAT16_WITH(half, /)
MLXTS_FLOAT16_WITH(bfloat, +)
MLXTS_FLOAT16_WITH(bfloat, -)
MLXTS_FLOAT16_WITH(bfloat, *)
MLXTS_FLOAT16_WITH(bfloat, /)
MLXTS_CUDA_FUNC half operator""h(long double x) { return half(float(x)); }
MLXTS_CUDA_FUNC half operator""h(unsigned long long x) { return half(float(x)); }
MLXTS_CUDA_FUNC bfloat operator"" bf(long double x) { return bfloat(float(x)); }

template <typename To, typename From>
MLXTS_CUDA_FUNC To as_type(From from) {
  return machine::bits<To>(from);
}

namespace metal {

using msl::as_type;

template <typename T>
struct identity {
  typedef T type;
};
template <typename T>
using identity_t = typename identity<T>::type;
template <typename A, typename B>
constexpr bool is_same_v = false;
template <typename A>
constexpr bool is_same_v<A, A> = true;
template <bool C, typename A, typename B>
struct conditional {
  typedef A type;
};
template <typename A, typename B>
struct conditional<false, A, B> {
  typedef B type;
};
template <bool C, typename A, typename B>
using conditional_t = typename conditional<C, A, B>::type;
template <bool C, typename T = void>
struct enable_if {};
template <typename T>
struct enable_if<true, T> {
  typedef T type;
};
template <bool C, typename T = void>
using enable_if_t = typename enable_if<C, T>::type;

// Vectors. Operators are found by their arguments, so that scalars convert to the vector's type.
template <typename T, int N>
struct vec;
#define MLXTS_EACH(R, body)                                            \
  R r;                                                                 \
  _Pragma("unroll") for (int i = 0; i < kSize; ++i)(&r.x)[i] = (body); \
  return r;
#define MLXTS_OPERATOR(op)                                                                                  \
  friend MLXTS_CUDA_FUNC vec operator op(                                                                   \
      vec a, vec b){MLXTS_EACH(vec, T((&a.x)[i] op(&b.x)[i]))} MLXTS_CUDA_FUNC vec& operator op##=(vec b) { \
    return *this = *this op b;                                                                              \
  }
#define MLXTS_COMPARISON(op)                                          \
  friend MLXTS_CUDA_FUNC vec<bool, kSize> operator op(vec a, vec b) { \
    using Bools = vec<bool, kSize>;                                   \
    MLXTS_EACH(Bools, (&a.x)[i] op(&b.x)[i])                          \
  }
#define MLXTS_VECTOR(N)                                                          \
  static constexpr int kSize = N;                                                \
  vec() = default;                                                               \
  MLXTS_CUDA_FUNC T& operator[](int i) { return (&x)[i]; }                       \
  MLXTS_CUDA_FUNC const T& operator[](int i) const { return (&x)[i]; }           \
  template <typename U>                                                          \
  MLXTS_CUDA_FUNC explicit vec(vec<U, N> v) {                                    \
    _Pragma("unroll") for (int i = 0; i < N; ++i)(&x)[i] = T((&v.x)[i]);         \
  }                                                                              \
  MLXTS_OPERATOR(+)                                                              \
  MLXTS_OPERATOR(-)                                                              \
  MLXTS_OPERATOR(*)                                                              \
  MLXTS_OPERATOR(/)                                                              \
  MLXTS_OPERATOR(%)                                                              \
  MLXTS_OPERATOR(&)                                                              \
  MLXTS_OPERATOR(|)                                                              \
  MLXTS_OPERATOR(^)                                                              \
  MLXTS_OPERATOR(<<)                                                             \
  MLXTS_OPERATOR(>>)                                                             \
  MLXTS_COMPARISON(==)                                                           \
  MLXTS_COMPARISON(!=)                                                           \
  MLXTS_COMPARISON(<)                                                            \
  MLXTS_COMPARISON(<=)                                                           \
  MLXTS_COMPARISON(>)                                                            \
  MLXTS_COMPARISON(>=)                                                           \
  friend MLXTS_CUDA_FUNC vec operator-(vec a) { MLXTS_EACH(vec, T(-(&a.x)[i])) } \
  friend MLXTS_CUDA_FUNC vec operator~(vec a) { MLXTS_EACH(vec, T(~(&a.x)[i])) }
template <typename T>
struct alignas(2 * sizeof(T)) vec<T, 2> {
  T x, y;
  MLXTS_VECTOR(2)
  MLXTS_CUDA_FUNC constexpr vec(T s) : x(s), y(s) {}
  MLXTS_CUDA_FUNC constexpr vec(T a, T b) : x(a), y(b) {}
};
template <typename T>
struct alignas(4 * sizeof(T)) vec<T, 3> {
  T x, y, z;
  MLXTS_VECTOR(3)
  MLXTS_CUDA_FUNC constexpr vec(T s) : x(s), y(s), z(s) {}
  MLXTS_CUDA_FUNC constexpr vec(T a, T b, T c) : x(a), y(b), z(c) {}
  MLXTS_CUDA_FUNC constexpr vec(vec<T, 2> v, T c) : x(v.x), y(v.y), z(c) {}
};
template <typename T>
struct alignas(4 * sizeof(T)) vec<T, 4> {
  T x, y, z, w;
  MLXTS_VECTOR(4)
  MLXTS_CUDA_FUNC constexpr vec(T s) : x(s), y(s), z(s), w(s) {}
  MLXTS_CUDA_FUNC constexpr vec(T a, T b, T c, T d) : x(a), y(b), z(c), w(d) {}
  MLXTS_CUDA_FUNC constexpr vec(vec<T, 2> v, T c, T d) : x(v.x), y(v.y), z(c), w(d) {}
  MLXTS_CUDA_FUNC constexpr vec(vec<T, 2> u, vec<T, 2> v) : x(u.x), y(u.y), z(v.x), w(v.y) {}
  MLXTS_CUDA_FUNC constexpr vec(vec<T, 3> v, T d) : x(v.x), y(v.y), z(v.z), w(d) {}
};
#define MLXTS_SCALARS(use) \
  use(float) use(half) use(bfloat) use(char) use(uchar) use(short) use(ushort) use(int) use(uint) use(long) use(ulong)
#define MLXTS_INTEGERS(use) use(char) use(uchar) use(short) use(ushort) use(int) use(uint) use(long) use(ulong)
#define MLXTS_VECTORS(T)  \
  typedef vec<T, 2> T##2; \
  typedef vec<T, 3> T##3; \
  typedef vec<T, 4> T##4;
MLXTS_SCALARS(MLXTS_VECTORS)
MLXTS_VECTORS(bool)

// Functions of numbers. Not templates where MSL's are not. min and max of floats ignore one NaN.
#define MLXTS_INTEGER(T)                                    \
  MLXTS_CUDA_FUNC T min(T a, T b) { return b < a ? b : a; } \
  MLXTS_CUDA_FUNC T max(T a, T b) { return a < b ? b : a; } \
  MLXTS_CUDA_FUNC T clamp(T x, T low, T high) { return min(max(x, low), high); }
MLXTS_INTEGERS(MLXTS_INTEGER)
MLXTS_CUDA_FUNC uint abs(int x) { return x < 0 ? 0u - uint(x) : uint(x); }
MLXTS_CUDA_FUNC ulong abs(long x) { return x < 0 ? 0ul - ulong(x) : ulong(x); }
MLXTS_CUDA_FUNC uint clz(uint x) { return machine::clz(x); }
MLXTS_CUDA_FUNC uint ctz(uint x) { return machine::ctz(x); }
MLXTS_CUDA_FUNC uint popcount(uint x) { return machine::popcount(x); }
MLXTS_CUDA_FUNC uint reverse_bits(uint x) { return machine::reverse_bits(x); }
MLXTS_CUDA_FUNC uint mulhi(uint a, uint b) { return machine::mulhi(a, b); }

// Of float and, by way of it, of 16-bit floats and vectors.
#define MLXTS_UNARY(name, body)                                            \
  MLXTS_CUDA_FUNC float name(float x) { return body; }                     \
  MLXTS_CUDA_FUNC half name(half x) { return half(name(float(x))); }       \
  MLXTS_CUDA_FUNC bfloat name(bfloat x) { return bfloat(name(float(x))); } \
  template <typename T, int N>                                             \
  MLXTS_CUDA_FUNC vec<T, N> name(vec<T, N> v) {                            \
    _Pragma("unroll") for (int i = 0; i < N; ++i) v[i] = name(v[i]);       \
    return v;                                                              \
  }
#define MLXTS_BINARY(name, body)                                                               \
  MLXTS_CUDA_FUNC float name(float x, float y) { return body; }                                \
  MLXTS_CUDA_FUNC half name(half x, half y) { return half(name(float(x), float(y))); }         \
  MLXTS_CUDA_FUNC bfloat name(bfloat x, bfloat y) { return bfloat(name(float(x), float(y))); } \
  template <typename T, int N>                                                                 \
  MLXTS_CUDA_FUNC vec<T, N> name(vec<T, N> a, identity_t<vec<T, N>> b) {                       \
    _Pragma("unroll") for (int i = 0; i < N; ++i) a[i] = name(a[i], b[i]);                     \
    return a;                                                                                  \
  }
#define MLXTS_OF_MACHINE(name) MLXTS_UNARY(name, machine::name(x))
#define MLXTS_FUNCTIONS                                                                                               \
  MLXTS_OF_MACHINE(exp)                                                                                               \
  MLXTS_OF_MACHINE(exp2)                                                                                              \
  MLXTS_OF_MACHINE(exp10)                                                                                             \
  MLXTS_OF_MACHINE(log)                                                                                               \
  MLXTS_OF_MACHINE(log2)                                                                                              \
  MLXTS_OF_MACHINE(log10)                                                                                             \
  MLXTS_OF_MACHINE(sqrt) MLXTS_OF_MACHINE(rsqrt) MLXTS_OF_MACHINE(sin) MLXTS_OF_MACHINE(cos) MLXTS_OF_MACHINE(tan)    \
      MLXTS_OF_MACHINE(tanh) MLXTS_OF_MACHINE(round) MLXTS_OF_MACHINE(rint) MLXTS_OF_MACHINE(floor)                   \
          MLXTS_OF_MACHINE(ceil) MLXTS_OF_MACHINE(trunc) MLXTS_OF_MACHINE(fabs) MLXTS_BINARY(pow, machine::pow(x, y)) \
              MLXTS_BINARY(fmod, machine::fmod(x, y)) MLXTS_BINARY(fmin, machine::fmin(x, y))                         \
                  MLXTS_BINARY(fmax, machine::fmax(x, y)) MLXTS_BINARY(copysign, machine::copysign(x, y))             \
                      MLXTS_BINARY(min, machine::fmin(x, y)) MLXTS_BINARY(max, machine::fmax(x, y))
MLXTS_FUNCTIONS
namespace precise {
MLXTS_FUNCTIONS
}
#define MLXTS_FLOAT(T)                                                                                      \
  MLXTS_CUDA_FUNC T abs(T x) { return fabs(x); }                                                            \
  MLXTS_CUDA_FUNC T clamp(T x, T low, T high) { return min(max(x, low), high); }                            \
  MLXTS_CUDA_FUNC T mix(T a, T b, T t) { return a + (b - a) * t; }                                          \
  MLXTS_CUDA_FUNC bool isnan(T x) { return float(x) != float(x); }                                          \
  MLXTS_CUDA_FUNC bool isinf(T x) { return machine::bits<uint>(machine::fabs(float(x))) == 0x7f800000u; }   \
  MLXTS_CUDA_FUNC bool isfinite(T x) { return machine::bits<uint>(machine::fabs(float(x))) < 0x7f800000u; } \
  MLXTS_CUDA_FUNC bool signbit(T x) { return (machine::bits<uint>(float(x)) & 0x80000000u) != 0; }
MLXTS_FLOAT(float)
MLXTS_FLOAT(half)
MLXTS_FLOAT(bfloat)
MLXTS_CUDA_FUNC float fma(float a, float b, float c) { return machine::fma(a, b, c); }
template <typename T, int N>
MLXTS_CUDA_FUNC vec<T, N> fma(vec<T, N> a, identity_t<vec<T, N>> b, identity_t<vec<T, N>> c) {
#pragma unroll
  for (int i = 0; i < N; ++i) a[i] = fma(a[i], b[i], c[i]);
  return a;
}
template <int N>
MLXTS_CUDA_FUNC float dot(vec<float, N> a, identity_t<vec<float, N>> b) {
  float sum = a[0] * b[0];
#pragma unroll
  for (int i = 1; i < N; ++i) sum = machine::fma(a[i], b[i], sum);
  return sum;
}
#define MLXTS_SELECT(T) \
  MLXTS_CUDA_FUNC T select(T a, T b, bool c) { return c ? b : a; }
MLXTS_SCALARS(MLXTS_SELECT)
template <typename T, int N>
MLXTS_CUDA_FUNC vec<T, N> select(vec<T, N> a, identity_t<vec<T, N>> b, vec<bool, N> c) {
#pragma unroll
  for (int i = 0; i < N; ++i) a[i] = c[i] ? b[i] : a[i];
  return a;
}
template <int N>
MLXTS_CUDA_FUNC bool all(vec<bool, N> v) {
  bool r = true;
#pragma unroll
  for (int i = 0; i < N; ++i) r = r && v[i];
  return r;
}
template <int N>
MLXTS_CUDA_FUNC bool any(vec<bool, N> v) {
  bool r = false;
#pragma unroll
  for (int i = 0; i < N; ++i) r = r || v[i];
  return r;
}

// Barriers: CUDA's are those of all memory.
enum class mem_flags : uint { mem_none = 0, mem_device = 1, mem_threadgroup = 2 };
MLXTS_CUDA_FUNC constexpr mem_flags operator|(mem_flags a, mem_flags b) { return mem_flags(uint(a) | uint(b)); }
MLXTS_CUDA_FUNC void threadgroup_barrier(mem_flags) { machine::threadgroup_barrier(); }
MLXTS_CUDA_FUNC void simdgroup_barrier(mem_flags) { machine::simdgroup_barrier(); }

// What the lanes of a simdgroup tell each other: 32 bits at a time.
#define MLXTS_SHUFFLE(name, of_machine)                                                                                \
  MLXTS_CUDA_FUNC uint name(uint x, ushort by) { return machine::of_machine(x, by); }                                  \
  MLXTS_CUDA_FUNC int name(int x, ushort by) { return int(machine::of_machine(uint(x), by)); }                         \
  MLXTS_CUDA_FUNC ushort name(ushort x, ushort by) { return ushort(machine::of_machine(uint(x), by)); }                \
  MLXTS_CUDA_FUNC bool name(bool x, ushort by) { return machine::of_machine(uint(x), by) != 0; }                       \
  MLXTS_CUDA_FUNC ulong name(ulong x, ushort by) {                                                                     \
    const uint low = machine::of_machine(uint(x), by), high = machine::of_machine(uint(x >> 32), by);                  \
    return ulong(high) << 32 | low;                                                                                    \
  }                                                                                                                    \
  MLXTS_CUDA_FUNC float name(float x, ushort by) { return as_type<float>(machine::of_machine(as_type<uint>(x), by)); } \
  MLXTS_CUDA_FUNC half name(half x, ushort by) { return half::of_raw(name(x.raw, by)); }                               \
  MLXTS_CUDA_FUNC bfloat name(bfloat x, ushort by) { return bfloat::of_raw(name(x.raw, by)); }                         \
  template <typename T, int N>                                                                                         \
  MLXTS_CUDA_FUNC vec<T, N> name(vec<T, N> v, ushort by) {                                                             \
    _Pragma("unroll") for (int i = 0; i < N; ++i) v[i] = name(v[i], by);                                               \
    return v;                                                                                                          \
  }
MLXTS_SHUFFLE(simd_shuffle, shuffle)
MLXTS_SHUFFLE(simd_broadcast, shuffle)
MLXTS_SHUFFLE(simd_shuffle_xor, shuffle_xor)
MLXTS_SHUFFLE(simd_shuffle_up, shuffle_up)
MLXTS_SHUFFLE(simd_shuffle_down, shuffle_down)
template <typename T>
MLXTS_CUDA_FUNC T simd_broadcast_first(T x) {
  return simd_broadcast(x, ushort(0));
}

#define MLXTS_REDUCE(name, body)                        \
  template <typename T>                                 \
  MLXTS_CUDA_FUNC T name(T a) {                         \
    _Pragma("unroll") for (int by = 16; by; by >>= 1) { \
      const T b = simd_shuffle_xor(a, ushort(by));      \
      a = T(body);                                      \
    }                                                   \
    return a;                                           \
  }
MLXTS_REDUCE(simd_sum, a + b)
MLXTS_REDUCE(simd_max, max(a, b))
MLXTS_REDUCE(simd_min, min(a, b))
MLXTS_CUDA_FUNC uint simd_sum(uint x) { return machine::reduce_add(x); }
MLXTS_CUDA_FUNC uint simd_max(uint x) { return machine::reduce_max(x); }
MLXTS_CUDA_FUNC uint simd_min(uint x) { return machine::reduce_min(x); }
MLXTS_CUDA_FUNC bool simd_all(bool x) { return machine::ballot(x) == 0xffffffffu; }
MLXTS_CUDA_FUNC bool simd_any(bool x) { return machine::ballot(x) != 0; }
template <typename T>
MLXTS_CUDA_FUNC T simd_prefix_inclusive_sum(T x) {
  const uint lane = machine::lane();
#pragma unroll
  for (uint by = 1; by < 32; by <<= 1) {
    const T below = simd_shuffle_up(x, ushort(by));
    if (lane >= by) x = T(x + below);
  }
  return x;
}
template <typename T>
MLXTS_CUDA_FUNC T simd_prefix_exclusive_sum(T x) {
  const T below = simd_shuffle_up(simd_prefix_inclusive_sum(x), ushort(1));
  return machine::lane() == 0 ? T(0) : below;
}

// Atomics, relaxed.
enum memory_order { memory_order_relaxed };
struct atomic_uint {
  uint value;
};
struct atomic_int {
  int value;
};
#define MLXTS_ATOMIC(Atomic, T)                                                                                   \
  MLXTS_CUDA_FUNC T atomic_load_explicit(const volatile Atomic* at, memory_order) {                               \
    return T(machine::atomic_load((const volatile uint*)at));                                                     \
  }                                                                                                               \
  MLXTS_CUDA_FUNC void atomic_store_explicit(volatile Atomic* at, T x, memory_order) {                            \
    machine::atomic_store((volatile uint*)at, uint(x));                                                           \
  }                                                                                                               \
  MLXTS_CUDA_FUNC bool atomic_compare_exchange_weak_explicit(volatile Atomic* at, T* expected, T x, memory_order, \
                                                             memory_order) {                                      \
    const T before = T(machine::atomic_compare_exchange((volatile uint*)at, uint(*expected), uint(x)));           \
    const bool done = before == *expected;                                                                        \
    *expected = before;                                                                                           \
    return done;                                                                                                  \
  }                                                                                                               \
  MLXTS_CUDA_FUNC T atomic_fetch_sub_explicit(volatile Atomic* at, T x, memory_order) {                           \
    return T(machine::atomic_add((volatile uint*)at, 0u - uint(x)));                                              \
  }                                                                                                               \
  MLXTS_CUDA_FUNC T atomic_fetch_min_explicit(volatile Atomic* at, T x, memory_order) {                           \
    return machine::atomic_min((volatile T*)at, x);                                                               \
  }                                                                                                               \
  MLXTS_CUDA_FUNC T atomic_fetch_max_explicit(volatile Atomic* at, T x, memory_order) {                           \
    return machine::atomic_max((volatile T*)at, x);                                                               \
  }
#define MLXTS_ATOMIC_OF(Atomic, T, name, of_machine)                          \
  MLXTS_CUDA_FUNC T name##_explicit(volatile Atomic* at, T x, memory_order) { \
    return T(machine::of_machine((volatile uint*)at, uint(x)));               \
  }
#define MLXTS_ATOMICS(Atomic, T)                               \
  MLXTS_ATOMIC(Atomic, T)                                      \
  MLXTS_ATOMIC_OF(Atomic, T, atomic_exchange, atomic_exchange) \
  MLXTS_ATOMIC_OF(Atomic, T, atomic_fetch_add, atomic_add)     \
  MLXTS_ATOMIC_OF(Atomic, T, atomic_fetch_and, atomic_and)     \
  MLXTS_ATOMIC_OF(Atomic, T, atomic_fetch_or, atomic_or)       \
  MLXTS_ATOMIC_OF(Atomic, T, atomic_fetch_xor, atomic_xor)
MLXTS_ATOMICS(atomic_uint, uint)
MLXTS_ATOMICS(atomic_int, int)

// 8 × 8 matrices. A lane holds [lane / 4][lane % 4 * 2] and its neighbor, as mma.sync has sums; with the contracted
// index in the order 0 2 4 6 1 3 5 7 that is its left operand, too. Its right operand is the transposed matrix: what
// was loaded from memory has both forms, and the compiler drops the one that nobody uses.
template <typename T, int Columns, int Rows = Columns>
struct simdgroup_matrix {
  static_assert(Columns == 8 && Rows == 8, "simdgroup matrices are 8 × 8");
  typedef vec<T, 2> storage_type;
  simdgroup_matrix() = default;
  MLXTS_CUDA_FUNC explicit simdgroup_matrix(T diagonal) : both(false) {
    const uint lane = machine::lane(), row = lane / 4, column = lane % 4 * 2;
    own = storage_type(row == column ? diagonal : T(0.0f), row == column + 1 ? diagonal : T(0.0f));
  }
  MLXTS_CUDA_FUNC storage_type& thread_elements() {
    both = false;
    return own;
  }
  MLXTS_CUDA_FUNC const storage_type& thread_elements() const { return own; }

  storage_type own, transposed;
  bool both;
};
typedef simdgroup_matrix<float, 8, 8> simdgroup_float8x8;
typedef simdgroup_matrix<half, 8, 8> simdgroup_half8x8;
typedef simdgroup_matrix<bfloat, 8, 8> simdgroup_bfloat8x8;

template <typename T, int Columns, int Rows>
MLXTS_CUDA_FUNC simdgroup_matrix<T, Columns, Rows> make_filled_simdgroup_matrix(identity_t<T> value) {
  simdgroup_matrix<T, Columns, Rows> m;
  m.own = m.transposed = vec<T, 2>(value);
  m.both = true;
  return m;
}
template <typename T>
MLXTS_CUDA_FUNC void simdgroup_load(simdgroup_matrix<T, 8, 8>& m, const T* from, ulong stride = 8,
                                    ulong2 origin = ulong2(0), bool transpose = false) {
  const uint lane = machine::lane(), row = lane / 4, column = lane % 4 * 2;
  from += origin.y * stride + origin.x;
  const vec<T, 2> along = vec<T, 2>(from[row * stride + column], from[row * stride + column + 1]);
  const vec<T, 2> across = vec<T, 2>(from[column * stride + row], from[(column + 1) * stride + row]);
  m.own = transpose ? across : along;
  m.transposed = transpose ? along : across;
  m.both = true;
}
template <typename T>
MLXTS_CUDA_FUNC void simdgroup_store(simdgroup_matrix<T, 8, 8> m, T* to, ulong stride = 8, ulong2 origin = ulong2(0),
                                     bool transpose = false) {
  const uint lane = machine::lane(), row = lane / 4, column = lane % 4 * 2;
  to += origin.y * stride + origin.x;
  to[transpose ? column * stride + row : row * stride + column] = m.own.x;
  to[transpose ? (column + 1) * stride + row : row * stride + column + 1] = m.own.y;
}

// The right operand that a matrix is.
MLXTS_CUDA_FUNC float2 right_of(const simdgroup_float8x8& m) {
  if (m.both) return m.transposed;
  const uint x = as_type<uint>(m.own.x), y = as_type<uint>(m.own.y);
  const uint low = machine::transposed16(machine::bytes_of(x, y, 0x5410));
  const uint high = machine::transposed16(machine::bytes_of(x, y, 0x7632));
  return float2(as_type<float>(machine::bytes_of(low, high, 0x5410)),
                as_type<float>(machine::bytes_of(low, high, 0x7632)));
}
template <typename T>
MLXTS_CUDA_FUNC float2 right_of(const simdgroup_matrix<T, 8, 8>& m) {
  if (m.both) return float2(m.transposed);
  const uint pair = machine::transposed16(as_type<uint>(m.own));
  return float2(as_type<vec<T, 2>>(pair));
}
// What tf32 leaves of x; nothing beside an infinity.
MLXTS_CUDA_FUNC uint tf32_rest(float x, uint tf32) {
  const float rest = x - as_type<float>(tf32);
  return machine::tf32_of(isfinite(rest) ? rest : 0.0f);
}
// a · b. f32 goes through tf32 in two parts, of which one suffices for 16-bit floats; the sum with what was there
// before is made in f32, which is more precise than the matrix unit's. Beside an infinity the rests mean nothing.
template <typename A, typename B>
MLXTS_CUDA_FUNC float2 product_of(const simdgroup_matrix<A, 8, 8>& left, const simdgroup_matrix<B, 8, 8>& right) {
  constexpr bool kSplitLeft = is_same_v<A, float>, kSplitRight = is_same_v<B, float>;
  const float2 a = float2(left.own), b = right_of(right);
  const uint a0 = machine::tf32_of(a.x), a1 = machine::tf32_of(a.y);
  const uint b0 = machine::tf32_of(b.x), b1 = machine::tf32_of(b.y);
  // Rows 8 … 15 of the instruction take the rest of a.
  const uint r0 = kSplitLeft ? tf32_rest(a.x, a0) : 0, r1 = kSplitLeft ? tf32_rest(a.y, a1) : 0;
  float most[4] = {0.0f, 0.0f, 0.0f, 0.0f}, rest[4] = {0.0f, 0.0f, 0.0f, 0.0f};
  machine::mma_tf32_k8(most, a0, r0, a1, r1, b0, b1);
  if (kSplitRight) machine::mma_tf32_k8(rest, a0, r0, a1, r1, tf32_rest(b.x, b0), tf32_rest(b.y, b1));
  if (!kSplitLeft && !kSplitRight) return float2(most[0], most[1]);
#pragma unroll
  for (int i = 0; i < 2; ++i)
    if (isfinite(most[i])) most[i] += rest[i] + (kSplitLeft ? most[i + 2] + rest[i + 2] : 0.0f);
  return float2(most[0], most[1]);
}
#define MLXTS_PRODUCT16(T, type)                                                                                     \
  MLXTS_CUDA_FUNC float2 product_of(const simdgroup_matrix<T, 8, 8>& left, const simdgroup_matrix<T, 8, 8>& right) { \
    float d[4] = {0.0f, 0.0f, 0.0f, 0.0f};                                                                           \
    const uint b = right.both ? as_type<uint>(right.transposed) : machine::transposed16(as_type<uint>(right.own));   \
    machine::mma_##type##_k8(d, as_type<uint>(left.own), 0, b);                                                      \
    return float2(d[0], d[1]);                                                                                       \
  }
MLXTS_PRODUCT16(half, f16)
MLXTS_PRODUCT16(bfloat, bf16)
template <typename A, typename B>
MLXTS_CUDA_FUNC void simdgroup_multiply_accumulate(simdgroup_float8x8& d, simdgroup_matrix<A, 8, 8> a,
                                                   simdgroup_matrix<B, 8, 8> b, simdgroup_float8x8 c) {
  d.thread_elements() = c.own + product_of(a, b);
}
template <typename A, typename B>
MLXTS_CUDA_FUNC void simdgroup_multiply(simdgroup_float8x8& d, simdgroup_matrix<A, 8, 8> a,
                                        simdgroup_matrix<B, 8, 8> b) {
  d.thread_elements() = product_of(a, b);
}

}  // namespace metal

// Vector names are global in MSL.
#define MLXTS_GLOBAL(T) \
  using metal::T##2;    \
  using metal::T##3;    \
  using metal::T##4;
MLXTS_SCALARS(MLXTS_GLOBAL)
MLXTS_GLOBAL(bool)

// What entry functions pass for positions, sizes and indices, by Metal's names.
namespace entries {

// Becomes an index of one to three components, 32 or 16 bits wide.
struct Position {
  machine::Axes at;
  MLXTS_CUDA_FUNC operator uint() const { return at.x; }
  MLXTS_CUDA_FUNC operator ushort() const { return ushort(at.x); }
  MLXTS_CUDA_FUNC operator uint2() const { return uint2(at.x, at.y); }
  MLXTS_CUDA_FUNC operator uint3() const { return uint3(at.x, at.y, at.z); }
  MLXTS_CUDA_FUNC operator ushort2() const { return ushort2(ushort(at.x), ushort(at.y)); }
  MLXTS_CUDA_FUNC operator ushort3() const { return ushort3(ushort(at.x), ushort(at.y), ushort(at.z)); }
};
// Becomes an index of 32 or 16 bits.
struct Index {
  uint value;
  MLXTS_CUDA_FUNC operator uint() const { return value; }
  MLXTS_CUDA_FUNC operator ushort() const { return ushort(value); }
};

MLXTS_CUDA_FUNC machine::Axes threadgroup_position_in_grid() { return machine::threadgroup(); }
MLXTS_CUDA_FUNC machine::Axes threadgroups_per_grid() { return machine::threadgroups(); }
MLXTS_CUDA_FUNC machine::Axes thread_position_in_threadgroup() { return machine::thread(); }
MLXTS_CUDA_FUNC machine::Axes threads_per_threadgroup() { return machine::threads(); }
MLXTS_CUDA_FUNC machine::Axes dispatch_threads_per_threadgroup() { return machine::threads(); }
MLXTS_CUDA_FUNC machine::Axes thread_position_in_grid() {
  const machine::Axes group = machine::threadgroup(), size = machine::threads(), at = machine::thread();
  return {group.x * size.x + at.x, group.y * size.y + at.y, group.z * size.z + at.z};
}
MLXTS_CUDA_FUNC machine::Axes threads_per_grid() {
  const machine::Axes groups = machine::threadgroups(), size = machine::threads();
  return {groups.x * size.x, groups.y * size.y, groups.z * size.z};
}
MLXTS_CUDA_FUNC uint thread_index_in_threadgroup() {
  const machine::Axes at = machine::thread(), size = machine::threads();
  return at.x + size.x * (at.y + size.y * at.z);
}
MLXTS_CUDA_FUNC uint thread_index_in_simdgroup() { return machine::lane(); }
MLXTS_CUDA_FUNC uint simdgroup_index_in_threadgroup() { return thread_index_in_threadgroup() / 32; }
MLXTS_CUDA_FUNC uint simdgroups_per_threadgroup() {
  const machine::Axes size = machine::threads();
  return (size.x * size.y * size.z + 31) / 32;
}

}  // namespace entries
}  // namespace msl
