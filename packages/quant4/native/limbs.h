// x as whole numbers of at most 24 bits, in limbs of one signed byte, for products with the unsigned bytes of codes:
// with AVX2 of all few rows of x, else of up to three, on processors that read or multiply W faster so than as
// limb_rows.h wants it. The columns that meet a lane in a section of W (64 of groups of 64) have one power of two as
// their unit, chosen by the largest of them: three limbs err by at most 2^-23 of that one (2^-22 with AVX2), two by
// 2^-15. Sums of products are exact.
#pragma once
#include "matrix_affine.h"
#include "matrix_dot.h"

namespace mlxts {

// Whether x is multiplied in limbs, and whether group by group (limb_groups_dot.h). AVX2 sums products of bytes in
// pairs in 16 bits, which hold those of codes of 4 bits.
#if defined(__AVX512VNNI__)
#define MLXTS_LIMBS 1
#define MLXTS_LIMB_GROUPS 0
template <int Bits>
inline constexpr bool kInLimbs = true;
#elif defined(__AVX2__)
#define MLXTS_LIMBS 1
#define MLXTS_LIMB_GROUPS 1
template <int Bits>
inline constexpr bool kInLimbs = Bits == 4;
#else
#define MLXTS_LIMBS 0
#define MLXTS_LIMB_GROUPS 0
template <int Bits>
inline constexpr bool kInLimbs = false;
#endif

// Vectors of code bytes in a chunk: of 4 bits, even columns and odd ones.
template <int Bits>
inline constexpr int kCodeVectors = 8 / Bits;

// Sums of products with one of three limbs count up from the bits of the float 1.5·2^23 units of that limb: while they
// stay below 2^22, they are the bits of that float plus the sum, in units. So nothing is converted. AVX2 adds limbs up
// in 32 bits instead, with fewer instructions there.
template <int Limbs>
inline constexpr bool kSumsAreFloats = kHasInt8Dot && Limbs == 3;
inline constexpr int32_t kFloatOfZero = 0x4b400000;  // of the unit 1

// Products with f32 results are those of centered codes, whose sums lose less when they are rounded.
template <int Limbs>
inline constexpr bool kCentered = Limbs == 3;

// Bits of the last limb. AVX2 has three limbs in units of 2^15, 2^7 and 1, the first of them negated: products in 16
// bits are multiplied by −2^15, which a signed number of 16 bits can be, and need no shift.
template <int Limbs>
inline constexpr int kLastBits = kLanes == 8 && Limbs == 3 ? 7 : 8;

// A chunk of x in limbs, largest first.
template <int Bits, int Limbs>
struct LimbChunk {
  vi32 limbs[Limbs][kCodeVectors<Bits>];  // four signed bytes a lane
  vf32 unit;                              // of each lane: of one limb, the chunk's own; else that of the section
};
#if defined(__AVX512VNNI__)
template <int Bits>
struct LimbChunk<Bits, 3> {
  vi32 limbs[3][kCodeVectors<Bits>];
  vi32 start[3];  // from which sums count up: the bits of a float less center·Σ of each lane
  vf32 zero;      // what the floats of all limbs have too much, the same in all of a section
};
#else
template <int Bits>
struct LimbChunk<Bits, 3> {
  vi32 limbs[3][kCodeVectors<Bits>];
  vi32 start;  // from which sums count up: less center·Σx of each lane
  vf32 unit;   // as above
};
#endif

#if defined(__AVX512VNNI__)
// What makes codes centered: center·Σx of each lane.
template <int Bits>
MLXTS_INLINE vi32 center_dot(vi32 sum, vu32 bytes) {
  return dot_int8x4(sum, vu32{} + (Bits == 4 ? 0x08080808u : 0x80808080u), bytes);
}

// v in whole numbers, ties to even.
MLXTS_INLINE vi32 whole_numbers(vf32 v) {
  return reinterpret_cast<vi32>(_mm512_maskz_cvtps_epi32(0xffff, reinterpret_cast<__m512>(v)));
}

// Of neighboring numbers in a and then in b, the first and the second of each two.
MLXTS_INLINE void split_pairs(vf32 a, vf32 b, vf32& first, vf32& second) {
  const __m512i even = reinterpret_cast<__m512i>(lane_index() * 2);
  const __m512i odd = _mm512_add_epi32(even, _mm512_set1_epi32(1));
  const __m512 low = reinterpret_cast<__m512>(a), high = reinterpret_cast<__m512>(b);
  first = reinterpret_cast<vf32>(_mm512_permutex2var_ps(low, even, high));
  second = reinterpret_cast<vf32>(_mm512_permutex2var_ps(low, odd, high));
}
#elif defined(__AVX2__)
MLXTS_INLINE vi32 whole_numbers(vf32 v) {
  return reinterpret_cast<vi32>(_mm256_cvtps_epi32(reinterpret_cast<__m256>(v)));
}

MLXTS_INLINE void split_pairs(vf32 a, vf32 b, vf32& first, vf32& second) {
  const __m256 low = reinterpret_cast<__m256>(a), high = reinterpret_cast<__m256>(b);
  const auto in_order = [](__m256 v) {  // shuffles work in halves
    return reinterpret_cast<vf32>(_mm256_permute4x64_pd(_mm256_castps_pd(v), 0xd8));
  };
  first = in_order(_mm256_shuffle_ps(low, high, 0x88));
  second = in_order(_mm256_shuffle_ps(low, high, 0xdd));
}
#endif

#if MLXTS_LIMBS
// Of N vectors of numbers one after another, every N-th, beginning with the j-th, becomes v[j]; N a power of two.
template <int N>
void deal(vf32 (&v)[N]) {
  for (int n = 1; n < N; n *= 2) {
    vf32 dealt[N];
    for (int k = 0; k < N; k += 2) split_pairs(v[k], v[k + 1], dealt[k / 2], dealt[k / 2 + N / 2]);
    for (int k = 0; k < N; ++k) v[k] = dealt[k];
  }
}

// The columns of one chunk as they meet the lanes: v[j] has column j of each lane's word.
template <int Bits>
void deal_chunk(const float* x, vf32 (&v)[kPerWord<Bits>]) {
  for (int j = 0; j < kPerWord<Bits>; ++j) v[j] = load(x + j * kLanes);
  deal(v);
}

// `chunks` chunks of a section of x, finite and below 2^100.
template <int Bits, int Limbs>
void split_limbs(const float* x, uint32_t chunks, LimbChunk<Bits, Limbs>* to) {
  constexpr int per = kPerWord<Bits>, kLast = kLastBits<Limbs>, kBits = 8 * (Limbs - 1) + kLast - 1;
  constexpr bool kNegatedFirst = kLast < 8;
  // Every limb the largest.
  constexpr int kMost = ((1 << 8 * (Limbs - 1)) - 1) / 255 * 127 * (1 << kLast) + (1 << (kLast - 1)) - 1;
  vf32 v[per], most = {};
  for (uint32_t c = 0; c < chunks; ++c) {
    deal_chunk<Bits>(x + c * kChunk<Bits>, v);
    for (int j = 0; j < per; ++j) most = max(most, max(v[j], -v[j]));
  }
  // The unit is 2^(e + 1 − kBits), where 2^e ≤ most·2^kBits / kMost < 2^(e + 1): numbers are at most kMost units.
  const vi32 exponent = (as_i32(most * splat(float(1 << kBits) / kMost)) >> 23) - splat_i32(127);
  const vi32 least = splat_i32(-100);  // smaller numbers are nothing beside those of a row that are far larger
  const vi32 e = exponent > least ? exponent : least;
  const vf32 inverse = power_of_two(splat_i32(kBits - 1) - e);
  for (uint32_t c = 0; c < chunks; ++c, ++to) {
    deal_chunk<Bits>(x + c * kChunk<Bits>, v);
    vi32 q[per];
    for (int j = 0; j < per; ++j) q[j] = whole_numbers(v[j] * inverse);
    if constexpr (kSumsAreFloats<Limbs>)
      to->zero = vf32{};
    else
      to->unit = power_of_two(e + splat_i32(1 - kBits));
    if constexpr (kCentered<Limbs> && !kSumsAreFloats<Limbs>) {
      vi32 sum = {};
      for (int j = 0; j < per; ++j) sum += q[j];
      to->start = sum * splat_i32(-int(kCenter<Bits>));
    }
    for (int k = Limbs - 1; k >= 0; --k) {
      const int bits = k == Limbs - 1 ? kLast : 8;
      [[maybe_unused]] vi32 dot = {};
      for (int i = 0; i < kCodeVectors<Bits>; ++i) {
        vi32 bytes = {};
        for (int b = 0; b < 4; ++b) {
          vi32& number = q[b * kCodeVectors<Bits> + i];
          const vi32 rest = (number + (1 << (bits - 1))) >> bits, limb = number - (rest << bits);
          bytes |= ((kNegatedFirst && k == 0 ? -limb : limb) & 0xff) << (8 * b);
          number = rest;
        }
        to->limbs[k][i] = bytes;
        if constexpr (kSumsAreFloats<Limbs>) dot = center_dot<Bits>(dot, reinterpret_cast<vu32>(bytes));
      }
      if constexpr (kSumsAreFloats<Limbs>) {
        const vi32 zero = splat_i32(kFloatOfZero) + ((e + splat_i32(8 * (Limbs - 1 - k) + 1 - kBits)) << 23);
        to->start[k] = zero - dot;
        to->zero += as_f32(zero);
      }
    }
  }
}
#endif

}  // namespace mlxts
