// x as whole numbers of at most 24 bits, in limbs of one signed byte, for products with the unsigned bytes of codes: of one
// or two rows of x on processors that read or multiply W faster so than as limb_rows.h wants it. The columns of one word of W (8 of 4 bits, 4 of 8 bits) have one power of two as their unit, chosen by the largest of them: three limbs
// err by at most 2^-23 of that one, two by 2^-15. Sums of products are exact in 32 bits.
#pragma once
#include "matrix_affine.h"
#include "matrix_dot.h"

namespace mlxts {

// Vectors of code bytes in a chunk: of 4 bits, even columns and odd ones.
template <int Bits>
inline constexpr int kCodeVectors = 8 / Bits;

// Codes of 4 bits have sums of all limbs in one vector: |Σ (code − 8)·x| ≤ 8·8·2^23 = 2^29. Of 8 bits these would pass
// 2^31, so the sums of the last limb stand apart.
template <int Bits, int Limbs>
inline constexpr int kLimbSums = Bits == 8 && Limbs == 3 ? 2 : 1;

// A chunk of x in limbs, largest first.
template <int Bits, int Limbs>
struct LimbChunk {
  vi32 limbs[Limbs][kCodeVectors<Bits>];  // four signed bytes a lane
  vi32 center[kLimbSums<Bits, Limbs>];    // −center·Σx of each lane: makes codes centered
  vf32 unit;                              // of each lane
};

#if defined(__AVX512VNNI__)
// Of N vectors of numbers one after another, every N-th, beginning with the j-th, becomes v[j]; N a power of two.
template <int N>
void deal(vf32 (&v)[N]) {
  alignas(64) int32_t order[kLanes];
  for (int l = 0; l < kLanes; ++l) order[l] = 2 * l;
  const __m512i even = _mm512_load_si512(order), odd = _mm512_add_epi32(even, _mm512_set1_epi32(1));
  for (int n = 1; n < N; n *= 2) {
    vf32 dealt[N];
    for (int k = 0; k < N; k += 2) {
      const __m512 a = reinterpret_cast<__m512>(v[k]), b = reinterpret_cast<__m512>(v[k + 1]);
      dealt[k / 2] = reinterpret_cast<vf32>(_mm512_permutex2var_ps(a, even, b));
      dealt[k / 2 + N / 2] = reinterpret_cast<vf32>(_mm512_permutex2var_ps(a, odd, b));
    }
    for (int k = 0; k < N; ++k) v[k] = dealt[k];
  }
}

// kChunk<Bits> columns of x, finite and below 2^118; x[l·kPerWord<Bits> + j] is column j of lane l.
template <int Bits, int Limbs>
void split_limbs(const float* x, LimbChunk<Bits, Limbs>& to) {
  constexpr int per = kPerWord<Bits>, kBits = 8 * Limbs - 1;
  constexpr int kMost = ((1 << 8 * Limbs) - 1) / 255 * 127;  // every limb 127
  vf32 v[per], most = {};
  for (int j = 0; j < per; ++j) v[j] = load(x + j * kLanes);
  deal(v);
  for (int j = 0; j < per; ++j) most = max(most, max(v[j], -v[j]));
  // The unit is 2^(e + 1 − kBits), where 2^e ≤ most·2^kBits / kMost < 2^(e + 1): numbers are at most kMost units.
  const vi32 exponent = (as_i32(most * splat(float(1 << kBits) / kMost)) >> 23) - splat_i32(127);
  const vi32 least = splat_i32(-100);  // smaller numbers are nothing beside those of a row that are far larger
  const vi32 e = exponent > least ? exponent : least;
  to.unit = power_of_two(e + splat_i32(1 - kBits));
  const vf32 inverse = power_of_two(splat_i32(kBits - 1) - e);
  vi32 q[per], sum = {};
  for (int j = 0; j < per; ++j) {
    q[j] = reinterpret_cast<vi32>(_mm512_maskz_cvtps_epi32(0xffff, reinterpret_cast<__m512>(v[j] * inverse)));
    sum += q[j];
  }
  constexpr int kShift = Bits == 4 ? 3 : 7;  // the center is 8 or 128
  if constexpr (kLimbSums<Bits, Limbs> == 2) {
    vi32 last = {};
    for (int j = 0; j < per; ++j) last += (q[j] << 24) >> 24;
    to.center[1] = -(last << kShift);
    sum = (sum - last) >> 8;
  }
  to.center[0] = -(sum << kShift);
  for (int k = Limbs - 1; k >= 0; --k)
    for (int i = 0; i < kCodeVectors<Bits>; ++i) {
      vi32 bytes = {};
      for (int b = 0; b < 4; ++b) {
        vi32& number = q[b * kCodeVectors<Bits> + i];
        bytes |= (number & 0xff) << (8 * b);
        number = (number + 128) >> 8;
      }
      to.limbs[k][i] = bytes;
    }
}
#endif

}  // namespace mlxts
