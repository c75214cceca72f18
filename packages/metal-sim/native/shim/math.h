// Scalar and element-wise functions. f32 follows IEEE with denormals; half and bfloat are computed in f32 and rounded.
// Overloads are not templates where MSL's are not, so that a call that is ambiguous there is ambiguous here.
#pragma once
#include "types.h"

namespace metal {

#define METAL_SIM_UNARY(name, body)                     \
  METAL_SIM_INLINE float name(float x) { return body; } \
  METAL_SIM_INLINE half name(half h) {                  \
    const float x = float(h);                           \
    return half(body);                                  \
  }                                                     \
  METAL_SIM_INLINE bfloat name(bfloat h) {              \
    const float x = float(h);                           \
    return bfloat(body);                                \
  }                                                     \
  template <typename T, int N>                          \
  METAL_SIM_INLINE vec<T, N> name(vec<T, N> v) {        \
    for (int i = 0; i < N; ++i) v[i] = name(v[i]);      \
    return v;                                           \
  }
METAL_SIM_UNARY(exp, __builtin_expf(x))
METAL_SIM_UNARY(exp2, __builtin_exp2f(x))
METAL_SIM_UNARY(exp10, __builtin_exp10f(x))
METAL_SIM_UNARY(log, __builtin_logf(x))
METAL_SIM_UNARY(log2, __builtin_log2f(x))
METAL_SIM_UNARY(log10, __builtin_log10f(x))
METAL_SIM_UNARY(sqrt, __builtin_sqrtf(x))
METAL_SIM_UNARY(rsqrt, 1.0f / __builtin_sqrtf(x))
METAL_SIM_UNARY(sin, __builtin_sinf(x))
METAL_SIM_UNARY(cos, __builtin_cosf(x))
METAL_SIM_UNARY(tan, __builtin_tanf(x))
METAL_SIM_UNARY(asin, __builtin_asinf(x))
METAL_SIM_UNARY(acos, __builtin_acosf(x))
METAL_SIM_UNARY(atan, __builtin_atanf(x))
METAL_SIM_UNARY(sinh, __builtin_sinhf(x))
METAL_SIM_UNARY(cosh, __builtin_coshf(x))
METAL_SIM_UNARY(tanh, __builtin_tanhf(x))
METAL_SIM_UNARY(asinh, __builtin_asinhf(x))
METAL_SIM_UNARY(acosh, __builtin_acoshf(x))
METAL_SIM_UNARY(atanh, __builtin_atanhf(x))
METAL_SIM_UNARY(sinpi, float(__builtin_sin(3.14159265358979323846 * __builtin_fmod(double(x), 2.0))))
METAL_SIM_UNARY(cospi, float(__builtin_cos(3.14159265358979323846 * __builtin_fmod(double(x), 2.0))))
METAL_SIM_UNARY(tanpi, float(__builtin_tan(3.14159265358979323846 * __builtin_fmod(double(x), 1.0))))
METAL_SIM_UNARY(fabs, __builtin_fabsf(x))
METAL_SIM_UNARY(floor, __builtin_floorf(x))
METAL_SIM_UNARY(ceil, __builtin_ceilf(x))
METAL_SIM_UNARY(round, __builtin_roundf(x))
METAL_SIM_UNARY(rint, __builtin_rintf(x))
METAL_SIM_UNARY(trunc, __builtin_truncf(x))
METAL_SIM_UNARY(fract, (x == __builtin_floorf(x) ? 0.0f : __builtin_fminf(x - __builtin_floorf(x), 0x1.fffffep-1f)))
METAL_SIM_UNARY(sign, (x > 0.0f ? 1.0f : x < 0.0f ? -1.0f : x == 0.0f ? x : 0.0f))
METAL_SIM_UNARY(saturate, __builtin_fminf(__builtin_fmaxf(x, 0.0f), 1.0f))

#define METAL_SIM_BINARY_FUNCTION(name, body)                             \
  METAL_SIM_INLINE float name(float x, float y) { return body; }          \
  METAL_SIM_INLINE half name(half a, half b) {                            \
    const float x = float(a), y = float(b);                               \
    return half(body);                                                    \
  }                                                                       \
  METAL_SIM_INLINE bfloat name(bfloat a, bfloat b) {                      \
    const float x = float(a), y = float(b);                               \
    return bfloat(body);                                                  \
  }                                                                       \
  template <typename T, int N>                                            \
  METAL_SIM_INLINE vec<T, N> name(vec<T, N> a, identity_t<vec<T, N>> b) { \
    for (int i = 0; i < N; ++i) a[i] = name(a[i], b[i]);                  \
    return a;                                                             \
  }
METAL_SIM_BINARY_FUNCTION(pow, __builtin_powf(x, y))
METAL_SIM_BINARY_FUNCTION(powr, __builtin_powf(x, y))
METAL_SIM_BINARY_FUNCTION(fmod, __builtin_fmodf(x, y))
METAL_SIM_BINARY_FUNCTION(atan2, __builtin_atan2f(x, y))
METAL_SIM_BINARY_FUNCTION(fmin, __builtin_fminf(x, y))
METAL_SIM_BINARY_FUNCTION(fmax, __builtin_fmaxf(x, y))
METAL_SIM_BINARY_FUNCTION(fdim, __builtin_fdimf(x, y))
METAL_SIM_BINARY_FUNCTION(copysign, __builtin_copysignf(x, y))
METAL_SIM_BINARY_FUNCTION(step, (y < x ? 0.0f : 1.0f))
METAL_SIM_BINARY_FUNCTION(divide, x / y)
METAL_SIM_BINARY_FUNCTION(nextafter, __builtin_nextafterf(x, y))

// Functions with a second result, in a variable of the thread.
#define METAL_SIM_SECOND_RESULT(T)                                                      \
  METAL_SIM_INLINE T ldexp(T x, int e) { return T(__builtin_ldexpf(float(x), e)); }     \
  METAL_SIM_INLINE int ilogb(T x) { return __builtin_ilogbf(float(x)); }                \
  METAL_SIM_INLINE T frexp(T x, METAL_SIM_THREAD int& exponent) {                       \
    int e = 0;                                                                          \
    const float fraction = __builtin_frexpf(float(x), &e);                              \
    exponent = e;                                                                       \
    return T(fraction);                                                                 \
  }                                                                                     \
  METAL_SIM_INLINE T modf(T x, METAL_SIM_THREAD T& whole) {                             \
    whole = trunc(x);                                                                   \
    return T(__builtin_copysignf(isinf(x) ? 0.0f : float(x) - float(whole), float(x))); \
  }                                                                                     \
  METAL_SIM_INLINE T sincos(T x, METAL_SIM_THREAD T& cosine) {                          \
    cosine = cos(x);                                                                    \
    return sin(x);                                                                      \
  }

#define METAL_SIM_FMA(T) \
  METAL_SIM_INLINE T fma(T a, T b, T c) { return T(__builtin_fma(double(a), double(b), double(c))); }
METAL_SIM_INLINE float fma(float a, float b, float c) { return __builtin_fmaf(a, b, c); }
// In double the product of two halves is exact and the sum nearly so: one rounding for all practical inputs.
METAL_SIM_FMA(half)
METAL_SIM_INLINE bfloat fma(bfloat a, bfloat b, bfloat c) {
  return bfloat(float(__builtin_fma(double(float(a)), double(float(b)), double(float(c)))));
}
template <typename T, int N>
METAL_SIM_INLINE vec<T, N> fma(vec<T, N> a, identity_t<vec<T, N>> b, identity_t<vec<T, N>> c) {
  for (int i = 0; i < N; ++i) a[i] = fma(a[i], b[i], c[i]);
  return a;
}

// As Metal's: min and max of floats ignore one NaN.
#define METAL_SIM_ORDER_FLOAT(T)                                                                     \
  METAL_SIM_INLINE T min(T a, T b) { return fmin(a, b); }                                            \
  METAL_SIM_INLINE T max(T a, T b) { return fmax(a, b); }                                            \
  METAL_SIM_INLINE T clamp(T x, T low, T high) { return fmin(fmax(x, low), high); }                  \
  METAL_SIM_INLINE T mix(T a, T b, T t) { return a + (b - a) * t; }                                  \
  METAL_SIM_INLINE T abs(T x) { return fabs(x); }                                                    \
  METAL_SIM_INLINE bool isnan(T x) { return float(x) != float(x); }                                  \
  METAL_SIM_INLINE bool isinf(T x) { return __builtin_fabsf(float(x)) == __builtin_inff(); }         \
  METAL_SIM_INLINE bool isfinite(T x) { return __builtin_fabsf(float(x)) < __builtin_inff(); }       \
  METAL_SIM_INLINE bool isnormal(T x) { return isfinite(x) && fabs(x) >= numeric_limits<T>::min(); } \
  METAL_SIM_INLINE bool signbit(T x) { return __builtin_signbit(float(x)) != 0; }
METAL_SIM_ORDER_FLOAT(float)
METAL_SIM_ORDER_FLOAT(half)
METAL_SIM_ORDER_FLOAT(bfloat)

// The middle of three, its least and its largest.
#define METAL_SIM_THREE(T, least, largest, prefix)                                     \
  METAL_SIM_INLINE T prefix##min3(T a, T b, T c) { return least(least(a, b), c); }     \
  METAL_SIM_INLINE T prefix##max3(T a, T b, T c) { return largest(largest(a, b), c); } \
  METAL_SIM_INLINE T prefix##median3(T a, T b, T c) { return largest(least(a, b), least(largest(a, b), c)); }
#define METAL_SIM_FLOAT_FUNCTIONS(T)                                           \
  METAL_SIM_SECOND_RESULT(T)                                                   \
  METAL_SIM_THREE(T, fmin, fmax, )                                             \
  METAL_SIM_THREE(T, fmin, fmax, f)                                            \
  METAL_SIM_INLINE bool isordered(T a, T b) { return !isnan(a) && !isnan(b); } \
  METAL_SIM_INLINE bool isunordered(T a, T b) { return isnan(a) || isnan(b); } \
  METAL_SIM_INLINE T smoothstep(T low, T high, T x) {                          \
    const T t = clamp(T((x - low) / (high - low)), T(0.0f), T(1.0f));          \
    return T(t * t * (T(3.0f) - T(2.0f) * t));                                 \
  }
METAL_SIM_FLOAT_FUNCTIONS(float)
METAL_SIM_FLOAT_FUNCTIONS(half)
METAL_SIM_FLOAT_FUNCTIONS(bfloat)

#define METAL_SIM_ORDER_INTEGER(T)                                                                             \
  METAL_SIM_INLINE T min(T a, T b) { return b < a ? b : a; }                                                   \
  METAL_SIM_INLINE T max(T a, T b) { return a < b ? b : a; }                                                   \
  METAL_SIM_INLINE T clamp(T x, T low, T high) { return min(max(x, low), high); }                              \
  METAL_SIM_INLINE T popcount(T x) { return T(__builtin_popcountll(bits_of(x))); }                             \
  METAL_SIM_INLINE T clz(T x) {                                                                                \
    return T(x == 0 ? sizeof(T) * 8 : __builtin_clzll(bits_of(x)) - (64 - sizeof(T) * 8));                     \
  }                                                                                                            \
  METAL_SIM_INLINE T ctz(T x) { return T(x == 0 ? sizeof(T) * 8 : __builtin_ctzll(bits_of(x))); }              \
  METAL_SIM_INLINE T reverse_bits(T x) {                                                                       \
    T r = 0;                                                                                                   \
    for (uint i = 0; i < sizeof(T) * 8; ++i) r = T(r | T(((bits_of(x) >> i) & 1) << (sizeof(T) * 8 - 1 - i))); \
    return r;                                                                                                  \
  }                                                                                                            \
  METAL_SIM_INLINE T rotate(T x, T by) {                                                                       \
    const uint n = uint(bits_of(by) % (sizeof(T) * 8));                                                        \
    return n == 0 ? x : T((bits_of(x) << n) | (bits_of(x) >> (sizeof(T) * 8 - n)));                            \
  }
#define METAL_SIM_BITS(S, U)                           \
  METAL_SIM_INLINE ulong bits_of(S x) { return U(x); } \
  METAL_SIM_INLINE ulong bits_of(U x) { return x; }
METAL_SIM_BITS(char, uchar)
METAL_SIM_BITS(short, ushort)
METAL_SIM_BITS(int, uint)
METAL_SIM_BITS(long, ulong)
METAL_SIM_ORDER_INTEGER(char)
METAL_SIM_ORDER_INTEGER(uchar)
METAL_SIM_ORDER_INTEGER(short)
METAL_SIM_ORDER_INTEGER(ushort)
METAL_SIM_ORDER_INTEGER(int)
METAL_SIM_ORDER_INTEGER(uint)
METAL_SIM_ORDER_INTEGER(long)
METAL_SIM_ORDER_INTEGER(ulong)

METAL_SIM_INLINE uint abs(int x) { return x < 0 ? 0u - uint(x) : uint(x); }
METAL_SIM_INLINE ulong abs(long x) { return x < 0 ? 0ul - ulong(x) : ulong(x); }
METAL_SIM_INLINE ushort abs(short x) { return ushort(x < 0 ? -x : x); }
METAL_SIM_INLINE uint absdiff(uint a, uint b) { return a < b ? b - a : a - b; }
METAL_SIM_INLINE uint absdiff(int a, int b) { return a < b ? uint(b) - uint(a) : uint(a) - uint(b); }
METAL_SIM_INLINE uint mulhi(uint a, uint b) { return uint((ulong(a) * b) >> 32); }
METAL_SIM_INLINE int mulhi(int a, int b) { return int((long(a) * b) >> 32); }
METAL_SIM_INLINE ulong mulhi(ulong a, ulong b) {
  const ulong low = (a & 0xffffffff) * (b & 0xffffffff);
  const ulong cross = (a >> 32) * (b & 0xffffffff) + (low >> 32);
  const ulong other = (a & 0xffffffff) * (b >> 32) + (cross & 0xffffffff);
  return (a >> 32) * (b >> 32) + (cross >> 32) + (other >> 32);
}
#define METAL_SIM_INTEGER_FUNCTIONS(T, low, high)                                \
  METAL_SIM_THREE(T, min, max, )                                                 \
  METAL_SIM_INLINE T hadd(T a, T b) { return T((long(a) + long(b)) >> 1); }      \
  METAL_SIM_INLINE T rhadd(T a, T b) { return T((long(a) + long(b) + 1) >> 1); } \
  METAL_SIM_INLINE T saturated(long x, T) { return T(x < long(low) ? long(low) : x > long(high) ? long(high) : x); }
METAL_SIM_INTEGER_FUNCTIONS(int, -0x80000000l, 0x7fffffffl)
METAL_SIM_INTEGER_FUNCTIONS(uint, 0, 0xffffffffl)
METAL_SIM_INLINE int addsat(int a, int b) { return saturated(long(a) + b, a); }
METAL_SIM_INLINE int subsat(int a, int b) { return saturated(long(a) - b, a); }
METAL_SIM_INLINE int madsat(int a, int b, int c) { return saturated(long(a) * b + c, a); }
METAL_SIM_INLINE uint madsat(uint a, uint b, uint c) {
  const ulong exact = ulong(a) * b + c;
  return exact > 0xffffffffu ? 0xffffffffu : uint(exact);
}
// Products of the low 24 bits, sign and all.
METAL_SIM_INLINE int low24(int x) { return int(uint(x) << 8) >> 8; }
METAL_SIM_INLINE uint low24(uint x) { return x & 0xffffffu; }
METAL_SIM_INLINE int mul24(int a, int b) { return int(uint(low24(a)) * uint(low24(b))); }
METAL_SIM_INLINE uint mul24(uint a, uint b) { return low24(a) * low24(b); }
METAL_SIM_INLINE int mad24(int a, int b, int c) { return int(uint(mul24(a, b)) + uint(c)); }
METAL_SIM_INLINE uint mad24(uint a, uint b, uint c) { return mul24(a, b) + c; }
METAL_SIM_INLINE uint madhi(uint a, uint b, uint c) { return mulhi(a, b) + c; }
METAL_SIM_INLINE uint addsat(uint a, uint b) { return a + b < a ? 0xffffffffu : a + b; }
METAL_SIM_INLINE uint subsat(uint a, uint b) { return a < b ? 0u : a - b; }
METAL_SIM_INLINE uint extract_bits(uint x, uint offset, uint bits) {
  return bits == 0 ? 0u : (x >> offset) & (bits >= 32 ? 0xffffffffu : (1u << bits) - 1u);
}
METAL_SIM_INLINE uint insert_bits(uint base, uint insert, uint offset, uint bits) {
  if (bits == 0) return base;
  const uint mask = (bits >= 32 ? 0xffffffffu : (1u << bits) - 1u) << offset;
  return (base & ~mask) | ((insert << offset) & mask);
}

#define METAL_SIM_SELECT(T) \
  METAL_SIM_INLINE T select(T a, T b, bool c) { return c ? b : a; }
METAL_SIM_SCALARS(METAL_SIM_SELECT)

#define METAL_SIM_VECTOR_BINARY(name)                                     \
  template <typename T, int N>                                            \
  METAL_SIM_INLINE vec<T, N> name(vec<T, N> a, identity_t<vec<T, N>> b) { \
    for (int i = 0; i < N; ++i) a[i] = name(a[i], b[i]);                  \
    return a;                                                             \
  }
#define METAL_SIM_VECTOR_UNARY(name, R)            \
  template <typename T, int N>                     \
  METAL_SIM_INLINE vec<R, N> name(vec<T, N> a) {   \
    vec<R, N> r;                                   \
    for (int i = 0; i < N; ++i) r[i] = name(a[i]); \
    return r;                                      \
  }
METAL_SIM_VECTOR_BINARY(min)
METAL_SIM_VECTOR_BINARY(max)
METAL_SIM_VECTOR_UNARY(abs, T)
METAL_SIM_VECTOR_UNARY(popcount, T)
METAL_SIM_VECTOR_UNARY(clz, T)
METAL_SIM_VECTOR_UNARY(ctz, T)
METAL_SIM_VECTOR_UNARY(isnan, bool)
METAL_SIM_VECTOR_UNARY(isinf, bool)
METAL_SIM_VECTOR_UNARY(isfinite, bool)
template <typename T, int N>
METAL_SIM_INLINE vec<T, N> clamp(vec<T, N> x, identity_t<vec<T, N>> low, identity_t<vec<T, N>> high) {
  return min(max(x, low), high);
}
template <typename T, int N>
METAL_SIM_INLINE vec<T, N> mix(vec<T, N> a, identity_t<vec<T, N>> b, identity_t<vec<T, N>> t) {
  return a + (b - a) * t;
}
template <typename T, int N>
METAL_SIM_INLINE vec<T, N> select(vec<T, N> a, identity_t<vec<T, N>> b, vec<bool, N> c) {
  for (int i = 0; i < N; ++i)
    if (c[i]) a[i] = b[i];
  return a;
}
template <typename T, int N>
METAL_SIM_INLINE T dot(vec<T, N> a, vec<T, N> b) {
  T sum = a[0] * b[0];
  for (int i = 1; i < N; ++i) sum = sum + a[i] * b[i];
  return sum;
}
template <typename T, int N>
METAL_SIM_INLINE T length_squared(vec<T, N> a) {
  return dot(a, a);
}
template <typename T, int N>
METAL_SIM_INLINE T length(vec<T, N> a) {
  return sqrt(dot(a, a));
}
template <typename T, int N>
METAL_SIM_INLINE T distance_squared(vec<T, N> a, identity_t<vec<T, N>> b) {
  return length_squared(a - b);
}
template <typename T, int N>
METAL_SIM_INLINE T distance(vec<T, N> a, identity_t<vec<T, N>> b) {
  return length(a - b);
}
template <typename T, int N>
METAL_SIM_INLINE vec<T, N> normalize(vec<T, N> a) {
  return a * rsqrt(dot(a, a));
}
template <typename T>
METAL_SIM_INLINE vec<T, 3> cross(vec<T, 3> a, identity_t<vec<T, 3>> b) {
  return vec<T, 3>(a[1] * b[2] - a[2] * b[1], a[2] * b[0] - a[0] * b[2], a[0] * b[1] - a[1] * b[0]);
}
template <typename T, int N>
METAL_SIM_INLINE vec<T, N> reflect(vec<T, N> incident, identity_t<vec<T, N>> normal) {
  return incident - normal * (T(2.0f) * dot(normal, incident));
}
template <typename T, int N>
METAL_SIM_INLINE vec<T, N> refract(vec<T, N> incident, identity_t<vec<T, N>> normal, identity_t<T> ratio) {
  const T cosine = dot(normal, incident);
  const T k = T(1.0f) - ratio * ratio * (T(1.0f) - cosine * cosine);
  return k < T(0.0f) ? vec<T, N>(T(0.0f)) : incident * ratio - normal * (ratio * cosine + sqrt(k));
}
template <typename T, int N>
METAL_SIM_INLINE vec<T, N> faceforward(vec<T, N> normal, identity_t<vec<T, N>> incident,
                                       identity_t<vec<T, N>> reference) {
  return dot(reference, incident) < T(0.0f) ? normal : -normal;
}
template <typename T, int N>
METAL_SIM_INLINE vec<T, N> smoothstep(vec<T, N> low, identity_t<vec<T, N>> high, identity_t<vec<T, N>> x) {
  for (int i = 0; i < N; ++i) x[i] = smoothstep(low[i], high[i], x[i]);
  return x;
}
template <typename T, int N>
METAL_SIM_INLINE vec<T, N> sincos(vec<T, N> x, METAL_SIM_THREAD vec<T, N>& cosine) {
  cosine = cos(x);
  return sin(x);
}
template <int N>
METAL_SIM_INLINE bool all(vec<bool, N> a) {
  bool r = true;
  for (int i = 0; i < N; ++i) r = r && a[i];
  return r;
}
template <int N>
METAL_SIM_INLINE bool any(vec<bool, N> a) {
  bool r = false;
  for (int i = 0; i < N; ++i) r = r || a[i];
  return r;
}

template <typename To, typename From>
METAL_SIM_INLINE To as_type(From from) {
  static_assert(sizeof(To) == sizeof(From), "as_type keeps the size");
  To to;
  __builtin_memcpy(&to, &from, sizeof(To));
  return to;
}

#define METAL_SIM_VARIANT(name) using metal::name;
#define METAL_SIM_VARIANTS                                                                                            \
  METAL_SIM_VARIANT(exp)                                                                                              \
  METAL_SIM_VARIANT(exp2)                                                                                             \
  METAL_SIM_VARIANT(exp10)                                                                                            \
  METAL_SIM_VARIANT(log)                                                                                              \
  METAL_SIM_VARIANT(log2) METAL_SIM_VARIANT(log10) METAL_SIM_VARIANT(sqrt) METAL_SIM_VARIANT(rsqrt)                   \
      METAL_SIM_VARIANT(sin) METAL_SIM_VARIANT(cos) METAL_SIM_VARIANT(tan) METAL_SIM_VARIANT(asin)                    \
          METAL_SIM_VARIANT(acos) METAL_SIM_VARIANT(atan) METAL_SIM_VARIANT(atan2) METAL_SIM_VARIANT(sinh)            \
              METAL_SIM_VARIANT(cosh) METAL_SIM_VARIANT(tanh) METAL_SIM_VARIANT(fabs) METAL_SIM_VARIANT(floor)        \
                  METAL_SIM_VARIANT(ceil) METAL_SIM_VARIANT(round) METAL_SIM_VARIANT(rint) METAL_SIM_VARIANT(trunc)   \
                      METAL_SIM_VARIANT(pow) METAL_SIM_VARIANT(powr) METAL_SIM_VARIANT(fmod) METAL_SIM_VARIANT(fmin)  \
                          METAL_SIM_VARIANT(fmax) METAL_SIM_VARIANT(min) METAL_SIM_VARIANT(max)                       \
                              METAL_SIM_VARIANT(clamp) METAL_SIM_VARIANT(fract) METAL_SIM_VARIANT(sign)               \
                                  METAL_SIM_VARIANT(saturate) METAL_SIM_VARIANT(abs) METAL_SIM_VARIANT(asinh)         \
                                      METAL_SIM_VARIANT(acosh) METAL_SIM_VARIANT(atanh) METAL_SIM_VARIANT(sinpi)      \
                                          METAL_SIM_VARIANT(cospi) METAL_SIM_VARIANT(tanpi) METAL_SIM_VARIANT(divide) \
                                              METAL_SIM_VARIANT(sincos) METAL_SIM_VARIANT(frexp)                      \
                                                  METAL_SIM_VARIANT(ldexp) METAL_SIM_VARIANT(modf)                    \
                                                      METAL_SIM_VARIANT(fdim) METAL_SIM_VARIANT(normalize)            \
                                                          METAL_SIM_VARIANT(length) METAL_SIM_VARIANT(distance)
namespace precise {
METAL_SIM_VARIANTS
}
namespace fast {
METAL_SIM_VARIANTS
}

}  // namespace metal

using metal::as_type;
