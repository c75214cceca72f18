// Products of narrow numbers that are summed in 32 bits: neighbors along the contracted dimension k, two bf16 or four
// bytes, make one 32-bit element, as processors with such products take them.
#pragma once
#include <type_traits>

#include "processor.h"
#include "simd.h"

namespace mlxts {

// Elements k and k + 1 of a row, k even; in a vector of 32-bit lanes the first is the lower half of its lane.
struct bf16x2 {
  bf16 first, second;
};

// Whether the level has products of bf16 that some of its processors do sooner than those of f32. With tiles it has none:
// all those processors are Intel's.
#if defined(__AVX512BF16__) && !defined(__AMX_TILE__)
#define MLXTS_FAST_BF16_DOT 1
inline constexpr bool kFastBf16Dot = true;
// Whether this processor takes longer for them, as Intel's do: twice as long. Asked when the library is loaded; tests ask
// for either by MLXTS_BF16_DOTS.
inline const bool kWidensBf16 = !asked_or("MLXTS_BF16_DOTS", !made_by_intel());
#else
#define MLXTS_FAST_BF16_DOT 0
inline constexpr bool kFastBf16Dot = false;
inline constexpr bool kWidensBf16 = false;
#endif
// Whether elements of X and W are multiplied so.
template <typename X, typename W>
inline constexpr bool kDotsBf16 = kFastBf16Dot && std::is_same_v<X, bf16> && std::is_same_v<W, bf16>;

// bf16 that is widened to f32 before it is multiplied; what it is in memory.
struct widened_bf16 : bf16 {};
template <typename X>
using Stored = std::conditional_t<std::is_same_v<X, widened_bf16>, bf16, X>;

// body<X>(), with X = widened_bf16 in place of a bf16 that meets another bf16 where that is faster.
template <typename X, typename W, typename Body>
MLXTS_INLINE auto with_left(Body body) {
  if constexpr (kDotsBf16<X, W>)
    if (kWidensBf16) return body.template operator()<widened_bf16>();
  return body.template operator()<X>();
}
// A kernel of X and W: the call is one with L, which is X or what is taken in its place.
#define MLXTS_KERNEL_OF_LEFT(name, X, W, ...)                                 \
  MLXTS_KERNEL(name, [](const mlxts::Launch& launch) {                        \
    return mlxts::with_left<X, W>([&]<typename L>() { return __VA_ARGS__; }); \
  })

// kLanes bf16x2: 2 · kLanes neighbors of a row as they lie.
MLXTS_INLINE vu32 load_bf16x2(const bf16* p) {
  vu32 v;
  memcpy(&v, p, sizeof v);
  return v;
}
// The first n < 2 · kLanes of them; the missing ones are 0.
MLXTS_INLINE vu32 load_bf16x2_partial(const bf16* p, int n) {
#if defined(__AVX512BW__)
  return reinterpret_cast<vu32>(_mm512_maskz_loadu_epi16(__mmask32((1ull << n) - 1), p));
#else
  bf16 some[2 * kLanes] = {};
  memcpy(some, p, n * sizeof(bf16));
  return load_bf16x2(some);
#endif
}
MLXTS_INLINE vu32 load_bf16x2(const bf16x2* p) { return load_bf16x2(&p->first); }
MLXTS_INLINE void store_bf16x2(bf16x2* p, vu32 v) { memcpy(p, &v, sizeof v); }

// A vector rounded to bf16 for such products: subnormal numbers may become 0.
MLXTS_INLINE void store_for_dot(bf16* p, vf32 v) {
#if defined(__AVX512BF16__)
  const __m256bh bits = _mm512_cvtneps_pbh(reinterpret_cast<__m512>(v));
  memcpy(p, &bits, sizeof bits);
#else
  store(p, v);
#endif
}

MLXTS_INLINE vf32 widen_first(vu32 v) { return reinterpret_cast<vf32>(v << 16); }
MLXTS_INLINE vf32 widen_second(vu32 v) { return reinterpret_cast<vf32>(v & 0xffff0000u); }

// Two vectors rounded to bf16, lane by lane in one bf16x2.
MLXTS_INLINE vu32 narrow_bf16x2(vf32 first, vf32 second) {
  return (reinterpret_cast<vu32>(round_to<bf16>(first)) >> 16) | reinterpret_cast<vu32>(round_to<bf16>(second));
}

// One bf16x2 in all lanes; at any alignment.
MLXTS_INLINE vu32 splat_bf16x2(const bf16* p) {
  uint32_t bits;
  memcpy(&bits, p, sizeof bits);
  return bits - vu32{};
}

// sum + a.first · b.first + a.second · b.second, lane by lane. The processor's own product takes subnormal numbers for
// 0; elsewhere it is made of two in f32.
MLXTS_INLINE vf32 dot_bf16x2(vf32 sum, vu32 a, vu32 b) {
#if defined(__AVX512BF16__)
  return reinterpret_cast<vf32>(
      _mm512_dpbf16_ps(reinterpret_cast<__m512>(sum), reinterpret_cast<__m512bh>(a), reinterpret_cast<__m512bh>(b)));
#else
  return fma(widen_first(a), widen_first(b), fma(widen_second(a), widen_second(b), sum));
#endif
}

// sum + a₀·b₀ + a₁·b₁ + a₂·b₂ + a₃·b₃, lane by lane, of unsigned bytes of a and signed ones of b.
MLXTS_INLINE vi32 dot_int8x4(vi32 sum, vu32 a, vu32 b) {
#if defined(__AVX512VNNI__) && !defined(__clang__)
  // GCC 12 copies the sum before each such product that it makes of the intrinsic function.
  asm("vpdpbusd %2, %1, %0" : "+v"(sum) : "v"(a), "v"(b));
  return sum;
#elif defined(__AVX512VNNI__)
  return reinterpret_cast<vi32>(
      _mm512_dpbusd_epi32(reinterpret_cast<__m512i>(sum), reinterpret_cast<__m512i>(a), reinterpret_cast<__m512i>(b)));
#else
  for (int i = 0; i < 32; i += 8)
    sum += reinterpret_cast<vi32>((a >> i) & 0xff) * (reinterpret_cast<vi32>(b << (24 - i)) >> 24);
  return sum;
#endif
}

// The same, of four bytes of b at any address, in all lanes.
MLXTS_INLINE vi32 dot_int8x4(vi32 sum, vu32 a, const int8_t* b) {
#if defined(__AVX512VNNI__) && !defined(__clang__)
  // GCC 12 loads and repeats the bytes by an instruction of its own.
  asm("vpdpbusd %2%{1to16%}, %1, %0" : "+v"(sum) : "v"(a), "m"(*reinterpret_cast<const int8_t(*)[4]>(b)));
  return sum;
#else
  return dot_int8x4(sum, a, splat_bf16x2(reinterpret_cast<const bf16*>(b)));
#endif
}

// Rows 2i and 2i + 1 of `from` become row i of `to`; a missing last row counts as zeros. `columns`: whole vectors.
MLXTS_INLINE void narrow_rows_bf16x2(const float* from, size_t stride, size_t rows, size_t columns, bf16x2* to,
                                     size_t to_stride) {
  for (size_t r = 0; r < rows; r += 2)
    for (size_t c = 0; c < columns; c += kLanes) {
      const float* at = from + r * stride + c;
      store_bf16x2(to + r / 2 * to_stride + c, narrow_bf16x2(load(at), r + 1 < rows ? load(at + stride) : vf32{}));
    }
}

}  // namespace mlxts
