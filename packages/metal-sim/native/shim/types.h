// Scalar and vector types. Also read as C++ for OpenCL by the address-space lint, so nothing here names an address
// space unless METAL_SIM_LINT is set.
#pragma once
#define METAL_SIM_TYPES 1

typedef char int8_t;
typedef unsigned char uint8_t;
typedef short int16_t;
typedef unsigned short uint16_t;
typedef int int32_t;
typedef unsigned int uint32_t;
typedef long int64_t;
typedef unsigned long uint64_t;
typedef unsigned char uchar;
typedef unsigned short ushort;
typedef unsigned int uint;
typedef unsigned long ulong;
typedef __SIZE_TYPE__ size_t;
typedef __PTRDIFF_TYPE__ ptrdiff_t;
typedef __UINTPTR_TYPE__ uintptr_t;
#ifdef METAL_SIM_LINT
#pragma OPENCL EXTENSION cl_khr_fp16 : enable
#define METAL_SIM_INLINE inline
#define METAL_SIM_CONSTANT constexpr __constant
#define METAL_SIM_THREAD __private
/** Stands for bfloat where the compiler has none. */
struct bfloat {
  ushort bits;
  bfloat() = default;
  constexpr bfloat(float) : bits(0) {}
  constexpr operator float() const { return 0.0f; }
  constexpr operator float() const __constant { return 0.0f; }
  bfloat& operator+=(float) { return *this; }
  bfloat& operator-=(float) { return *this; }
  bfloat& operator*=(float) { return *this; }
  bfloat& operator/=(float) { return *this; }
};
// Constant memory has no generic pointer: it needs members of its own.
#define METAL_SIM_FROM_CONSTANT(T, name, N)                \
  T operator[](int i) const __constant { return (&x)[i]; } \
  name(const name&) = default;                             \
  name& operator=(const name&) = default;                  \
  name(const __constant name& v) {                         \
    for (int i = 0; i < N; ++i) (&x)[i] = (&v.x)[i];       \
  }
#else
typedef _Float16 half;
typedef __bf16 bfloat;
#define METAL_SIM_CONSTANT constexpr
#define METAL_SIM_THREAD
// Accesses within the shim carry the line of the kernel that calls it.
#define METAL_SIM_INLINE inline __attribute__((always_inline, nodebug, no_sanitize("alignment")))
#define METAL_SIM_FROM_CONSTANT(T, name, N)
#endif

namespace metal {

template <typename T, int N>
struct vec;

template <typename T>
struct identity {
  typedef T type;
};
template <typename T>
using identity_t = typename identity<T>::type;

// Element-wise operators, found by argument-dependent look-up so that scalars convert to the vector's type.
#define METAL_SIM_EACH(body)                           \
  vec r;                                               \
  for (int i = 0; i < kSize; ++i) (&r.x)[i] = T(body); \
  return r;
#define METAL_SIM_EACH_BOOL(body)                   \
  vec<bool, kSize> r;                               \
  for (int i = 0; i < kSize; ++i) (&r.x)[i] = body; \
  return r;
#define METAL_SIM_BINARY(op)                                                                             \
  friend METAL_SIM_INLINE constexpr vec operator op(                                                     \
      vec a, vec b){METAL_SIM_EACH((&a.x)[i] op(&b.x)[i])} METAL_SIM_INLINE vec& operator op##=(vec b) { \
    return *this = *this op b;                                                                           \
  }
#define METAL_SIM_COMPARE(op)                                                    \
  friend METAL_SIM_INLINE constexpr vec<bool, kSize> operator op(vec a, vec b) { \
    METAL_SIM_EACH_BOOL((&a.x)[i] op(&b.x)[i])                                   \
  }
#define METAL_SIM_VECTOR(N)                                                             \
  static METAL_SIM_CONSTANT int kSize = N;                                              \
  METAL_SIM_INLINE T& operator[](int i) { return (&x)[i]; }                             \
  METAL_SIM_INLINE const T& operator[](int i) const { return (&x)[i]; }                 \
  METAL_SIM_FROM_CONSTANT(T, vec, N)                                                    \
  vec() = default;                                                                      \
  template <typename U>                                                                 \
  METAL_SIM_INLINE explicit constexpr vec(vec<U, N> v) : vec() {                        \
    for (int i = 0; i < N; ++i) (&x)[i] = T((&v.x)[i]);                                 \
  }                                                                                     \
  METAL_SIM_BINARY(+)                                                                   \
  METAL_SIM_BINARY(-)                                                                   \
  METAL_SIM_BINARY(*)                                                                   \
  METAL_SIM_BINARY(/)                                                                   \
  METAL_SIM_BINARY(%)                                                                   \
  METAL_SIM_BINARY(&)                                                                   \
  METAL_SIM_BINARY(|)                                                                   \
  METAL_SIM_BINARY(^)                                                                   \
  METAL_SIM_BINARY(<<)                                                                  \
  METAL_SIM_BINARY(>>)                                                                  \
  METAL_SIM_COMPARE(==)                                                                 \
  METAL_SIM_COMPARE(!=)                                                                 \
  METAL_SIM_COMPARE(<)                                                                  \
  METAL_SIM_COMPARE(<=)                                                                 \
  METAL_SIM_COMPARE(>)                                                                  \
  METAL_SIM_COMPARE(>=)                                                                 \
  METAL_SIM_COMPARE(&&)                                                                 \
  METAL_SIM_COMPARE(||)                                                                 \
  friend METAL_SIM_INLINE constexpr vec operator-(vec a) { METAL_SIM_EACH(-(&a.x)[i]) } \
  friend METAL_SIM_INLINE constexpr vec operator+(vec a) { return a; }                  \
  friend METAL_SIM_INLINE constexpr vec operator~(vec a) { METAL_SIM_EACH(~(&a.x)[i]) } \
  friend METAL_SIM_INLINE constexpr vec<bool, N> operator!(vec a) { METAL_SIM_EACH_BOOL(!(&a.x)[i]) }
#define METAL_SIM_COMPONENT(first, second) \
  union {                                  \
    T first;                               \
    T second;                              \
  };

template <typename T>
struct alignas(2 * sizeof(T)) vec<T, 2> {
  METAL_SIM_COMPONENT(x, r)
  METAL_SIM_COMPONENT(y, g)
  METAL_SIM_VECTOR(2)
  METAL_SIM_INLINE constexpr vec(T s) : x(s), y(s) {}
  METAL_SIM_INLINE constexpr vec(T a, T b) : x(a), y(b) {}
};

template <typename T>
struct alignas(4 * sizeof(T)) vec<T, 3> {
  METAL_SIM_COMPONENT(x, r)
  METAL_SIM_COMPONENT(y, g)
  METAL_SIM_COMPONENT(z, b)
  METAL_SIM_VECTOR(3)
  METAL_SIM_INLINE constexpr vec(T s) : x(s), y(s), z(s) {}
  METAL_SIM_INLINE constexpr vec(T a, T b, T c) : x(a), y(b), z(c) {}
  METAL_SIM_INLINE constexpr vec(vec<T, 2> v, T c) : x(v.x), y(v.y), z(c) {}
  METAL_SIM_INLINE constexpr vec(T a, vec<T, 2> v) : x(a), y(v.x), z(v.y) {}
};

template <typename T>
struct alignas(4 * sizeof(T)) vec<T, 4> {
  METAL_SIM_COMPONENT(x, r)
  METAL_SIM_COMPONENT(y, g)
  METAL_SIM_COMPONENT(z, b)
  METAL_SIM_COMPONENT(w, a)
  METAL_SIM_VECTOR(4)
  METAL_SIM_INLINE constexpr vec(T s) : x(s), y(s), z(s), w(s) {}
  METAL_SIM_INLINE constexpr vec(T a, T b, T c, T d) : x(a), y(b), z(c), w(d) {}
  METAL_SIM_INLINE constexpr vec(vec<T, 2> v, T c, T d) : x(v.x), y(v.y), z(c), w(d) {}
  METAL_SIM_INLINE constexpr vec(T a, vec<T, 2> v, T d) : x(a), y(v.x), z(v.y), w(d) {}
  METAL_SIM_INLINE constexpr vec(T a, T b, vec<T, 2> v) : x(a), y(b), z(v.x), w(v.y) {}
  METAL_SIM_INLINE constexpr vec(vec<T, 2> u, vec<T, 2> v) : x(u.x), y(u.y), z(v.x), w(v.y) {}
  METAL_SIM_INLINE constexpr vec(vec<T, 3> v, T d) : x(v.x), y(v.y), z(v.z), w(d) {}
  METAL_SIM_INLINE constexpr vec(T a, vec<T, 3> v) : x(a), y(v.x), z(v.y), w(v.z) {}
};

/** Vectors without padding, aligned as their elements. */
template <typename T, int N>
struct packed_vec {
  T x[N];
  packed_vec() = default;
  METAL_SIM_INLINE packed_vec(vec<T, N> v) {
    for (int i = 0; i < N; ++i) x[i] = v[i];
  }
  METAL_SIM_INLINE packed_vec(T a, T b) : x{a, b} { static_assert(N == 2, "a packed vector of 2"); }
  METAL_SIM_INLINE packed_vec(T a, T b, T c) : x{a, b, c} { static_assert(N == 3, "a packed vector of 3"); }
  METAL_SIM_INLINE packed_vec(T a, T b, T c, T d) : x{a, b, c, d} { static_assert(N == 4, "a packed vector of 4"); }
  METAL_SIM_INLINE operator vec<T, N>() const {
    vec<T, N> r;
    for (int i = 0; i < N; ++i) r[i] = x[i];
    return r;
  }
  METAL_SIM_INLINE T& operator[](int i) { return x[i]; }
  METAL_SIM_INLINE const T& operator[](int i) const { return x[i]; }
};

#define METAL_SIM_VECTORS(T) \
  typedef vec<T, 2> T##2;    \
  typedef vec<T, 3> T##3;    \
  typedef vec<T, 4> T##4;
#define METAL_SIM_PACKED(T)               \
  typedef packed_vec<T, 2> packed_##T##2; \
  typedef packed_vec<T, 3> packed_##T##3; \
  typedef packed_vec<T, 4> packed_##T##4;
#define METAL_SIM_SCALARS(use) \
  use(float) use(half) use(bfloat) use(char) use(uchar) use(short) use(ushort) use(int) use(uint) use(long) use(ulong)
METAL_SIM_SCALARS(METAL_SIM_VECTORS)
METAL_SIM_SCALARS(METAL_SIM_PACKED)
METAL_SIM_VECTORS(bool)

template <typename T, T V>
struct integral_constant {
  static METAL_SIM_CONSTANT T value = V;
  constexpr operator T() const { return V; }
};
typedef integral_constant<bool, true> true_type;
typedef integral_constant<bool, false> false_type;

template <typename A, typename B>
struct is_same : false_type {};
template <typename A>
struct is_same<A, A> : true_type {};
template <typename A, typename B>
METAL_SIM_CONSTANT bool is_same_v = is_same<A, B>::value;

template <typename T>
struct remove_cv {
  typedef T type;
};
template <typename T>
struct remove_cv<const T> : remove_cv<T> {};
template <typename T>
struct remove_cv<volatile T> : remove_cv<T> {};
template <typename T>
using remove_cv_t = typename remove_cv<T>::type;

template <typename T>
struct is_floating_point : integral_constant<bool, is_same_v<T, float> || is_same_v<T, half> || is_same_v<T, bfloat>> {
};
template <typename T>
METAL_SIM_CONSTANT bool is_floating_point_v = is_floating_point<T>::value;
#define METAL_SIM_OR_SAME(U) || is_same_v<T, U>
template <typename T>
METAL_SIM_CONSTANT bool is_integral_v = is_same_v<T, bool> METAL_SIM_OR_SAME(char) METAL_SIM_OR_SAME(signed char)
    METAL_SIM_OR_SAME(uchar) METAL_SIM_OR_SAME(short) METAL_SIM_OR_SAME(ushort) METAL_SIM_OR_SAME(int)
        METAL_SIM_OR_SAME(uint) METAL_SIM_OR_SAME(long) METAL_SIM_OR_SAME(ulong);
template <typename T>
struct is_integral : integral_constant<bool, is_integral_v<T>> {};

template <bool B, typename T = void>
struct enable_if {};
template <typename T>
struct enable_if<true, T> {
  typedef T type;
};
template <bool B, typename T = void>
using enable_if_t = typename enable_if<B, T>::type;

template <bool B, typename T, typename F>
struct conditional {
  typedef T type;
};
template <typename T, typename F>
struct conditional<false, T, F> {
  typedef F type;
};
template <bool B, typename T, typename F>
using conditional_t = typename conditional<B, T, F>::type;

#define METAL_SIM_LIMITS(T, low, small, high, bits, ...)  \
  template <>                                             \
  struct numeric_limits<T> {                              \
    static METAL_SIM_CONSTANT bool is_specialized = true; \
    static METAL_SIM_CONSTANT int digits = bits;          \
    static constexpr T lowest() { return low; }           \
    static constexpr T min() { return small; }            \
    static constexpr T max() { return high; }             \
    __VA_ARGS__                                           \
  };
#define METAL_SIM_FLOAT_LIMITS(T, largest, least, step, bits)                          \
  METAL_SIM_LIMITS(                                                                    \
      T, T(-largest), T(least), T(largest), bits,                                      \
      static constexpr T epsilon() { return T(step); } static constexpr T infinity() { \
        return T(__builtin_inff());                                                    \
      } static constexpr T quiet_NaN() { return T(__builtin_nanf("")); })
#define METAL_SIM_INTEGER_LIMITS(T, low, high, bits) METAL_SIM_LIMITS(T, low, low, high, bits, )

template <typename T>
struct numeric_limits {
  static METAL_SIM_CONSTANT bool is_specialized = false;
};
METAL_SIM_FLOAT_LIMITS(float, 0x1.fffffep127f, 0x1.0p-126f, 0x1.0p-23f, 24)
METAL_SIM_FLOAT_LIMITS(half, 65504.0f, 0x1.0p-14f, 0x1.0p-10f, 11)
METAL_SIM_FLOAT_LIMITS(bfloat, 0x1.fep127f, 0x1.0p-126f, 0x1.0p-7f, 8)
METAL_SIM_INTEGER_LIMITS(char, -128, 127, 7)
METAL_SIM_INTEGER_LIMITS(uchar, 0, 255, 8)
METAL_SIM_INTEGER_LIMITS(short, -32768, 32767, 15)
METAL_SIM_INTEGER_LIMITS(ushort, 0, 65535, 16)
METAL_SIM_INTEGER_LIMITS(int, (-2147483647 - 1), 2147483647, 31)
METAL_SIM_INTEGER_LIMITS(uint, 0u, 0xffffffffu, 32)
METAL_SIM_INTEGER_LIMITS(long, (-0x7fffffffffffffffl - 1), 0x7fffffffffffffffl, 63)
METAL_SIM_INTEGER_LIMITS(ulong, 0ul, 0xfffffffffffffffful, 64)

}  // namespace metal

// Vector names are global in MSL.
#define METAL_SIM_GLOBAL(T) \
  using metal::T##2;        \
  using metal::T##3;        \
  using metal::T##4;
#define METAL_SIM_GLOBAL_PACKED(T) \
  using metal::packed_##T##2;      \
  using metal::packed_##T##3;      \
  using metal::packed_##T##4;
METAL_SIM_SCALARS(METAL_SIM_GLOBAL)
METAL_SIM_SCALARS(METAL_SIM_GLOBAL_PACKED)
METAL_SIM_GLOBAL(bool)
