// Portable SIMD for CPU kernels: f32 vectors as wide as the instruction set being compiled for, with exact
// widening from bf16/f16 and rounding (ties to even, subnormals and NaN kept) back to them.
#pragma once
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmath>
#include <type_traits>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

#define MLXTS_INLINE inline __attribute__((always_inline))

// Before a loop of at most 16 rounds: all of them are written out, so that arrays of vectors live in registers.
#if defined(__clang__)
#define MLXTS_UNROLL _Pragma("unroll")
#else
#define MLXTS_UNROLL _Pragma("GCC unroll 16")
#endif

namespace mlxts {

struct bf16 {
  uint16_t bits;
};
struct f16 {
  uint16_t bits;
};

#if defined(__AVX512F__)
inline constexpr int kLanes = 16;
#elif defined(__AVX2__)
inline constexpr int kLanes = 8;
#else
inline constexpr int kLanes = 4;
#endif

typedef float vf32 __attribute__((vector_size(kLanes * 4)));
typedef int32_t vi32 __attribute__((vector_size(kLanes * 4)));
typedef uint32_t vu32 __attribute__((vector_size(kLanes * 4)));
typedef uint16_t vu16 __attribute__((vector_size(kLanes * 2)));

MLXTS_INLINE vf32 splat(float x) { return x - vf32{}; }
MLXTS_INLINE vi32 splat_i32(int32_t x) { return x - vi32{}; }
MLXTS_INLINE vf32 as_f32(vi32 v) { return reinterpret_cast<vf32>(v); }
MLXTS_INLINE vi32 as_i32(vf32 v) { return reinterpret_cast<vi32>(v); }
MLXTS_INLINE vf32 select(vi32 mask, vf32 yes, vf32 no) { return mask ? yes : no; }
// b where either is NaN.
#if defined(__AVX2__) && !defined(__AVX512F__)
MLXTS_INLINE vf32 max(vf32 a, vf32 b) { return vf32(_mm256_max_ps(__m256(a), __m256(b))); }
MLXTS_INLINE vf32 min(vf32 a, vf32 b) { return vf32(_mm256_min_ps(__m256(a), __m256(b))); }
#else
MLXTS_INLINE vf32 max(vf32 a, vf32 b) { return select(a > b, a, b); }
MLXTS_INLINE vf32 min(vf32 a, vf32 b) { return select(a < b, a, b); }
#endif
MLXTS_INLINE vf32 fma(vf32 a, vf32 b, vf32 c) { return a * b + c; }
// The numbers 0, 1, 2, … in the lanes.
MLXTS_INLINE vi32 lane_index() {
  vi32 v;
  for (int i = 0; i < kLanes; ++i) v[i] = i;
  return v;
}

// v, in a register, as a number of which the compiler knows nothing: it neither contracts what made v with what uses
// it, nor loads it again for another use.
MLXTS_INLINE vf32 in_register(vf32 v) {
#if defined(__AVX512F__)
  asm("" : "+v"(v));
#elif defined(__x86_64__)
  asm("" : "+x"(v));
#elif defined(__aarch64__)
  asm("" : "+w"(v));
#else
  asm("" : "+m"(v));
#endif
  return v;
}
MLXTS_INLINE vu32 in_register(vu32 v) { return reinterpret_cast<vu32>(in_register(reinterpret_cast<vf32>(v))); }

// Scalar conversions.
MLXTS_INLINE float to_f32(float x) { return x; }
MLXTS_INLINE float to_f32(bf16 x) {
  const uint32_t bits = uint32_t(x.bits) << 16;
  float out;
  memcpy(&out, &bits, 4);
  return out;
}
MLXTS_INLINE float to_f32(f16 x) {
  // Shift the magnitude into place and rescale: exact for subnormals too; infinity and NaN get their exponent back.
  uint32_t bits = uint32_t(x.bits & 0x7fff) << 13;
  float magnitude;
  memcpy(&magnitude, &bits, 4);
  magnitude *= 0x1p112f;
  memcpy(&bits, &magnitude, 4);
  if ((x.bits & 0x7c00) == 0x7c00) bits |= 0x7f800000;
  bits |= uint32_t(x.bits & 0x8000) << 16;
  float out;
  memcpy(&out, &bits, 4);
  return out;
}

template <typename T>
MLXTS_INLINE T from_f32(float x);
template <>
MLXTS_INLINE float from_f32<float>(float x) {
  return x;
}
template <>
MLXTS_INLINE bf16 from_f32<bf16>(float x) {
  uint32_t bits;
  memcpy(&bits, &x, 4);
  if ((bits & 0x7fffffff) > 0x7f800000) return {uint16_t((bits >> 16) | 0x40)};
  return {uint16_t((bits + 0x7fff + ((bits >> 16) & 1)) >> 16)};
}
template <>
MLXTS_INLINE f16 from_f32<f16>(float x) {
  uint32_t bits;
  memcpy(&bits, &x, 4);
  const uint32_t sign = (bits >> 16) & 0x8000;
  bits &= 0x7fffffff;
  if (bits > 0x7f800000) return {uint16_t(sign | 0x7e00 | ((bits >> 13) & 0x3ff))};
  if (bits >= 0x477ff000) return {uint16_t(sign | 0x7c00)};
  if (bits < 0x38800000) {
    // Below the smallest normal: adding 0.5 aligns the mantissa to f16's subnormal grid with the right rounding.
    float magnitude;
    memcpy(&magnitude, &bits, 4);
    magnitude += 0.5f;
    memcpy(&bits, &magnitude, 4);
    return {uint16_t(sign | (bits - 0x3f000000))};
  }
  return {uint16_t(sign | ((bits + 0xfff + ((bits >> 13) & 1) - 0x38000000) >> 13))};
}

// Vector loads and stores of kLanes elements; unaligned.
MLXTS_INLINE vf32 load(const float* p) {
  vf32 v;
  memcpy(&v, p, sizeof v);
  return v;
}
MLXTS_INLINE void store(float* p, vf32 v) { memcpy(p, &v, sizeof v); }

// Written out where GCC makes two halves of it.
MLXTS_INLINE vu32 widen_u16(vu16 v) {
#if defined(__AVX512F__)
  return reinterpret_cast<vu32>(_mm512_maskz_cvtepu16_epi32(0xffff, reinterpret_cast<__m256i>(v)));
#elif defined(__AVX2__)
  return reinterpret_cast<vu32>(_mm256_cvtepu16_epi32(reinterpret_cast<__m128i>(v)));
#else
  return __builtin_convertvector(v, vu32);
#endif
}
// Values below 2^16.
MLXTS_INLINE vu16 narrow_u32(vu32 v) {
#if defined(__AVX512F__)
  return reinterpret_cast<vu16>(_mm512_cvtepi32_epi16(reinterpret_cast<__m512i>(v)));
#elif defined(__AVX2__)
  // Packing works in 128-bit halves and saturates, which values below 2^16 do not notice.
  const __m256i bits = reinterpret_cast<__m256i>(v);
  const __m256i packed = _mm256_permute4x64_epi64(_mm256_packus_epi32(bits, bits), 0x08);
  return reinterpret_cast<vu16>(_mm256_castsi256_si128(packed));
#else
  return __builtin_convertvector(v, vu16);
#endif
}
MLXTS_INLINE vf32 widen(vu16 v, bf16) { return reinterpret_cast<vf32>(widen_u16(v) << 16); }
MLXTS_INLINE vf32 widen(vu16 v, f16) {
#if defined(__AVX512F__)
  return reinterpret_cast<vf32>(_mm512_maskz_cvtph_ps(0xffff, reinterpret_cast<__m256i>(v)));
#elif defined(__F16C__)
  return reinterpret_cast<vf32>(_mm256_cvtph_ps(reinterpret_cast<__m128i>(v)));
#else
  const vu32 h = __builtin_convertvector(v, vu32);
  vu32 bits = (h & 0x7fff) << 13;
  bits = reinterpret_cast<vu32>(reinterpret_cast<vf32>(bits) * 0x1p112f);
  bits |= reinterpret_cast<vu32>((h & 0x7c00) == 0x7c00) & 0x7f800000;
  return reinterpret_cast<vf32>(bits | ((h & 0x8000) << 16));
#endif
}
// The bits of x rounded to bf16, in the upper half of each lane; the lower half is left over.
MLXTS_INLINE vu32 bf16_bits(vf32 x) {
  const vu32 bits = reinterpret_cast<vu32>(x);
  const vu32 rounded = bits + 0x7fff + ((bits >> 16) & 1);
  return x != x ? bits | 0x400000 : rounded;
}
MLXTS_INLINE vu16 narrow(vf32 x, bf16) { return narrow_u32(bf16_bits(x) >> 16); }
MLXTS_INLINE vu16 narrow(vf32 x, f16) {
#if defined(__AVX512F__)
  return reinterpret_cast<vu16>(
      _mm512_maskz_cvtps_ph(0xffff, reinterpret_cast<__m512>(x), _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
#elif defined(__F16C__)
  return reinterpret_cast<vu16>(
      _mm256_cvtps_ph(reinterpret_cast<__m256>(x), _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
#else
  vu16 out;
  for (int i = 0; i < kLanes; ++i) out[i] = from_f32<f16>(x[i]).bits;
  return out;
#endif
}
template <typename T>
MLXTS_INLINE vf32 load(const T* p) {
  vu16 v;
  memcpy(&v, p, sizeof v);
  return widen(v, T{});
}
template <typename T>
MLXTS_INLINE void store(T* p, vf32 v) {
  const vu16 bits = narrow(v, T{});
  memcpy(p, &bits, sizeof bits);
}

// The first n < kLanes elements; missing lanes read as 0. Without mask registers these are loops; they are not inlined,
// because they are called in so many places that they would double a kernel's compile time.
#if defined(__AVX512F__)
MLXTS_INLINE vf32 load_partial(const float* p, int n) {
  return reinterpret_cast<vf32>(_mm512_maskz_loadu_ps(__mmask16((1u << n) - 1), p));
}
MLXTS_INLINE void store_partial(float* p, vf32 v, int n) {
  _mm512_mask_storeu_ps(p, __mmask16((1u << n) - 1), reinterpret_cast<__m512>(v));
}
template <typename T>
MLXTS_INLINE vf32 load_partial(const T* p, int n) {
  return widen(reinterpret_cast<vu16>(_mm256_maskz_loadu_epi16(__mmask16((1u << n) - 1), p)), T{});
}
template <typename T>
MLXTS_INLINE void store_partial(T* p, vf32 v, int n) {
  _mm256_mask_storeu_epi16(p, __mmask16((1u << n) - 1), reinterpret_cast<__m256i>(narrow(v, T{})));
}
#else
template <typename T>
__attribute__((noinline)) vf32 load_partial(const T* p, int n) {
  vf32 v = {};
  for (int i = 0; i < n; ++i) v[i] = to_f32(p[i]);
  return v;
}
template <typename T>
__attribute__((noinline)) void store_partial(T* p, vf32 v, int n) {
  for (int i = 0; i < n; ++i) p[i] = from_f32<T>(v[i]);
}
#endif
// The first `count` elements, or all where there are more.
template <typename T>
MLXTS_INLINE void store_up_to(T* p, vf32 v, size_t count) {
  if (count >= kLanes)
    store(p, v);
  else
    store_partial(p, v, int(count));
}

// v rounded to T and widened again: what a store followed by a load gives.
template <typename T>
MLXTS_INLINE vf32 round_to(vf32 v) {
  if constexpr (std::is_same_v<T, float>)
    return v;
  else if constexpr (std::is_same_v<T, bf16>)
    return reinterpret_cast<vf32>(bf16_bits(v) & 0xffff0000);
  else
    return widen(narrow(v, T{}), T{});
}
template <typename T>
MLXTS_INLINE float round_to(float x) {
  return to_f32(from_f32<T>(x));
}

MLXTS_INLINE float reduce_add(vf32 v) {
#if defined(__AVX512F__)
  // GCC 12 calls its own _mm512_reduce_add_ps uninitialized.
  const auto eight = __builtin_shufflevector(v, v, 0, 1, 2, 3, 4, 5, 6, 7) +
                     __builtin_shufflevector(v, v, 8, 9, 10, 11, 12, 13, 14, 15);
  const auto four =
      __builtin_shufflevector(eight, eight, 0, 1, 2, 3) + __builtin_shufflevector(eight, eight, 4, 5, 6, 7);
  return (four[0] + four[2]) + (four[1] + four[3]);
#else
  float sum[kLanes];
  store(sum, v);
  for (int width = kLanes / 2; width > 0; width /= 2)
    for (int i = 0; i < width; ++i) sum[i] += sum[i + width];
  return sum[0];
#endif
}
// The largest lane; which of NaN and numbers wins is open.
MLXTS_INLINE float reduce_max(vf32 v) {
#if defined(__AVX512F__)
  v = max(v, __builtin_shufflevector(v, v, 8, 9, 10, 11, 12, 13, 14, 15, 0, 1, 2, 3, 4, 5, 6, 7));
  v = max(v, __builtin_shufflevector(v, v, 4, 5, 6, 7, 0, 1, 2, 3, 12, 13, 14, 15, 8, 9, 10, 11));
  v = max(v, __builtin_shufflevector(v, v, 2, 3, 0, 1, 6, 7, 4, 5, 10, 11, 8, 9, 14, 15, 12, 13));
  v = max(v, __builtin_shufflevector(v, v, 1, 0, 3, 2, 5, 4, 7, 6, 9, 8, 11, 10, 13, 12, 15, 14));
  return v[0];
#else
  float out = v[0];
  for (int i = 1; i < kLanes; ++i) out = v[i] > out ? v[i] : out;
  return out;
#endif
}

MLXTS_INLINE size_t round_up(size_t n, size_t unit) { return (n + unit - 1) / unit * unit; }

MLXTS_INLINE vf32 power_of_two(vi32 n) { return as_f32((n + splat_i32(127)) << 23); }

// exp(x) = mantissa · 2^exponent, the mantissa around 1; NaN stays NaN.
struct ExpParts {
  vf32 mantissa;
  vi32 exponent;
};
MLXTS_INLINE ExpParts exp_parts(vf32 x) {
  const vf32 shifted = x * splat(0x1.715476p0f) + splat(0x1.8p23f);
  const vf32 k = shifted - splat(0x1.8p23f);
  vf32 r = k * splat(-0x1.62e4p-1f) + x;
  r = k * splat(-0x1.7f7d1cp-20f) + r;
  vf32 p = splat(0x1.a01a02p-13f);
  p = p * r + splat(0x1.6c16c2p-10f);
  p = p * r + splat(0x1.111112p-7f);
  p = p * r + splat(0x1.555556p-5f);
  p = p * r + splat(0x1.555556p-3f);
  p = p * r + splat(0.5f);
  p = p * r + splat(1.0f);
  p = p * r + splat(1.0f);
  return {p, as_i32(shifted) - splat_i32(0x4b400000)};
}

// x from `low` to `high`; NaN stays NaN.
MLXTS_INLINE vf32 clamp(vf32 x, float low, float high) { return min(splat(high), max(splat(low), x)); }

// exp within 1 ulp of f32; overflows to infinity, underflows gradually to 0, NaN stays NaN.
MLXTS_INLINE vf32 exp(vf32 x) {
  const ExpParts parts = exp_parts(clamp(x, -104.0f, 89.0f));
#if defined(__AVX512F__)
  return reinterpret_cast<vf32>(_mm512_scalef_ps(reinterpret_cast<__m512>(parts.mantissa),
                                                 _mm512_cvtepi32_ps(reinterpret_cast<__m512i>(parts.exponent))));
#endif
  // 2^n in two factors, so that results in the subnormal range are rounded once.
  const vi32 half = parts.exponent >> 1;
  return parts.mantissa * power_of_two(half) * power_of_two(parts.exponent - half);
}

// Natural logarithm of normal x > 0: x = 2^n·m with m around 1, then 2·artanh((m − 1)/(m + 1)).
MLXTS_INLINE vf32 log(vf32 x) {
  // Unsigned: x may be anything where its logarithm is not used.
  const vu32 bits = reinterpret_cast<vu32>(x);
  const vi32 n = reinterpret_cast<vi32>(bits - 0x3f3504f3) >> 23;
  const vf32 m = reinterpret_cast<vf32>(bits - (reinterpret_cast<vu32>(n) << 23));
  const vf32 s = (m - splat(1.0f)) / (m + splat(1.0f));
  const vf32 z = s * s;
  vf32 p = splat(2.0f / 9);
  p = p * z + splat(2.0f / 7);
  p = p * z + splat(2.0f / 5);
  p = p * z + splat(2.0f / 3);
  const vf32 k = __builtin_convertvector(n, vf32);
  // The high part of log 2 has so few digits that k times it is exact.
  return k * splat(0x1.62e4p-1f) + (k * splat(0x1.7f7d1cp-20f) + (p * z * s + (s + s)));
}

// a · b · σ(x) = a · b / (1 + exp(-x)), where one of a and b is x or 1; right wherever f32 holds the product. Where
// exp(-x) is large, both sides of the fraction are multiplied by the root of 1 / exp(-x): neither leaves the normal range.
// Below -175 σ(x) counts as 0.
MLXTS_INLINE vf32 times_sigmoid(vf32 a, vf32 b, vf32 x) {
  // Below the lower bound 1 + exp is 1; near the upper one the root becomes 0.
  const ExpParts parts = exp_parts(clamp(-x, -17.4f, 177.0f));
  const vi32 half = (parts.exponent > 0 ? parts.exponent : vi32{}) >> 1;
  const vf32 root = power_of_two(-half);
  return a / (root + parts.mantissa * power_of_two(parts.exponent - half)) * (b * root);
}
MLXTS_INLINE vf32 sigmoid(vf32 x) { return times_sigmoid(splat(1.0f), splat(1.0f), x); }
MLXTS_INLINE vf32 silu(vf32 x) { return times_sigmoid(x, splat(1.0f), x); }

#if defined(__AVX2__)
// 2^(i / kLanes) for lane i, less what i << kStepShift adds to its bits.
inline constexpr int kStepShift = kLanes == 16 ? 19 : 20;
alignas(kLanes * 4) inline constexpr int32_t kStepPowers[kLanes] = {
#if defined(__AVX512F__)
    0x3f800000, 0x3f7daac3, 0x3f7b95c2, 0x3f79c3d3, 0x3f7837f0, 0x3f76f532,
    0x3f75fed7, 0x3f75583f, 0x3f7504f3, 0x3f7508a4, 0x3f75672a, 0x3f76248c,
    0x3f7744fd, 0x3f78ccdf, 0x3f7ac0c7, 0x3f7d257d
#else
    0x3f800000, 0x3f7b95c2, 0x3f7837f0, 0x3f75fed7, 0x3f7504f3, 0x3f75672a,
    0x3f7744fd, 0x3f7ac0c7
#endif
};
// 2^(n / kLanes), where it is normal, from the lowest bits of n.
MLXTS_INLINE vf32 step_power(vi32 n) {
#if defined(__AVX512F__)
  const __m512i powers = _mm512_load_si512(kStepPowers);
  const vi32 power = reinterpret_cast<vi32>(_mm512_permutexvar_epi32(reinterpret_cast<__m512i>(n), powers));
#else
  const __m256i powers = *reinterpret_cast<const __m256i*>(kStepPowers);
  const vi32 power = reinterpret_cast<vi32>(_mm256_permutevar8x32_epi32(powers, reinterpret_cast<__m256i>(n)));
#endif
  return as_f32(power + (n << kStepShift));
}

// 1 + exp(-x) within 2^-22 for |x| of at most 40. exp(-x) is 2^(n / kLanes) · exp(r) with r so small that a polynomial of
// the third degree will do: half the instructions, and half as long a chain of them, of times_sigmoid.
MLXTS_INLINE vf32 one_plus_small_exp(vf32 x) {
  constexpr float kSteps = kLanes;
  const vf32 shifted = x * splat(-0x1.715476p0f * kSteps) + splat(0x1.8p23f);
  const vf32 n = shifted - splat(0x1.8p23f);
  // The high part of log 2 has so few digits that n times it is exact.
  vf32 r = n * splat(-0x1.62e4p-1f / kSteps) - x;
  r = n * splat(-0x1.7f7d1cp-20f / kSteps) + r;
  // (exp(r) - 1) / r for |r| of at most log 2 / (2 · kLanes): the factor of r makes the largest error least.
  vf32 slope = r * splat(0x1.555556p-3f) + splat(kLanes == 16 ? 0x1.00022p-1f : 0x1.00088p-1f);
  slope = slope * r + splat(1.0f);
  const vf32 power = step_power(as_i32(shifted));
  return power * r * slope + (power + splat(1.0f));
}
MLXTS_INLINE bool all(vi32 mask) {
#if defined(__AVX512F__)
  return _mm512_movepi32_mask(reinterpret_cast<__m512i>(mask)) == 0xffff;
#else
  return _mm256_movemask_ps(reinterpret_cast<__m256>(mask)) == 0xff;
#endif
}
#endif

// As times_sigmoid, for a result that is rounded to T: where that has 16 bits, the result is within 2^-21 before.
// What a lane gives does not depend on other lanes.
template <typename T>
MLXTS_INLINE vf32 times_sigmoid(vf32 a, vf32 b, vf32 x) {
#if defined(__AVX2__)
  if constexpr (sizeof(T) == 2) {
    const vf32 product = a / one_plus_small_exp(x) * b;
    const vi32 isSmall = as_f32(as_i32(x) & splat_i32(0x7fffffff)) <= splat(40.0f);
    if (__builtin_expect(all(isSmall), true)) return product;
    return select(isSmall, product, times_sigmoid(a, b, x));
  }
#endif
  return times_sigmoid(a, b, x);
}
template <typename T>
MLXTS_INLINE vf32 silu(vf32 x) {
  return times_sigmoid<T>(x, splat(1.0f), x);
}

// body(offset, count) over [0, n): full vectors first, then one partial.
template <typename Full, typename Partial>
MLXTS_INLINE void for_lanes(size_t n, Full full, Partial partial) {
  size_t i = 0;
  for (; i + kLanes <= n; i += kLanes) full(i);
  if (i < n) partial(i, int(n - i));
}

// Asks for the line so many bytes ahead of p, which may lie outside of what p points into; of locality 3 to the nearest
// cache, of 2 to the second.
template <int Locality = 3>
MLXTS_INLINE void fetch(const void* p, ptrdiff_t ahead) {
  __builtin_prefetch(reinterpret_cast<const void*>(uintptr_t(p) + uintptr_t(ahead)), 0, Locality);
}

// Asks for rows of `row_bytes` each ahead of their use.
MLXTS_INLINE void prefetch_rows(const void* first, size_t stride_bytes, size_t rows, size_t row_bytes) {
  for (size_t r = 0; r < rows; ++r)
    for (size_t at = 0; at < row_bytes; at += 64)
      __builtin_prefetch(static_cast<const char*>(first) + r * stride_bytes + at, 0, 2);
}

// A row of n elements, each converted to the other dtype.
template <typename From, typename To>
MLXTS_INLINE void convert_row(const From* from, size_t n, To* to) {
  for_lanes(
      n, [&](size_t i) { store(to + i, load(from + i)); },
      [&](size_t i, int count) { store_partial(to + i, load_partial(from + i, count), count); });
}

// Σ x², in four independent chains.
template <typename T>
MLXTS_INLINE float sum_of_squares(const T* x, size_t n) {
  vf32 sum[4] = {};
  size_t i = 0;
  for (; i + 4 * kLanes <= n; i += 4 * kLanes)
    for (int j = 0; j < 4; ++j) {
      const vf32 v = load(x + i + j * kLanes);
      sum[j] = fma(v, v, sum[j]);
    }
  for (; i + kLanes <= n; i += kLanes) {
    const vf32 v = load(x + i);
    sum[0] = fma(v, v, sum[0]);
  }
  if (i < n) {
    const vf32 v = load_partial(x + i, int(n - i));
    sum[1] = fma(v, v, sum[1]);
  }
  return reduce_add((sum[0] + sum[1]) + (sum[2] + sum[3]));
}

}  // namespace mlxts
