// x as whole numbers of at most 24 bits, in limbs of one signed byte, for products with the unsigned bytes of codes:
// with AVX2 of all few rows of x (limb_pairs.h), else of up to three, on processors that read or multiply W faster so
// than as limb_rows.h wants it. The columns that meet a lane in a section of W (64 of groups of 64) have one power of
// two as their unit, chosen by the largest of them: three limbs err by at most 2^-23 of that one (2^-22 with AVX2), two
// by 2^-15. Sums of products are exact.
#pragma once
#include "matrix_affine.h"
#include "matrix_dot.h"

namespace mlxts {

// Whether x is multiplied in limbs, and whether with pairs of groups (limb_pairs.h). AVX2 sums products of bytes in
// pairs in 16 bits, which hold those of codes of 4 bits.
#if defined(__AVX512VNNI__)
#define MLXTS_LIMBS 1
#define MLXTS_LIMB_PAIRS 0
template <int Bits>
inline constexpr bool kInLimbs = true;
#elif defined(__AVX2__)
#define MLXTS_LIMBS 1
#define MLXTS_LIMB_PAIRS 1
template <int Bits>
inline constexpr bool kInLimbs = Bits == 4;
#else
#define MLXTS_LIMBS 0
#define MLXTS_LIMB_PAIRS 0
template <int Bits>
inline constexpr bool kInLimbs = false;
#endif

// Vectors of code bytes in a vector of words: of 4 bits, even columns and odd ones.
template <int Bits>
inline constexpr int kCodeVectors = 8 / Bits;

// Products with f32 results are those of centered codes, whose sums lose less when they are rounded.
template <int Limbs>
inline constexpr bool kCentered = Limbs == 3;

inline constexpr int32_t kFloatOfZero = 0x4b400000;  // the float 1.5·2^23, of the unit 1

#if MLXTS_LIMBS
#if defined(__AVX512VNNI__)
// v in whole numbers, ties to even.
MLXTS_INLINE vi32 whole_numbers(vf32 v) {
  return reinterpret_cast<vi32>(_mm512_maskz_cvtps_epi32(0xffff, reinterpret_cast<__m512>(v)));
}

// Of neighboring numbers in a and then in b, the first and the second of each two.
MLXTS_INLINE void split_neighbors(vf32 a, vf32 b, vf32& first, vf32& second) {
  const __m512i even = reinterpret_cast<__m512i>(lane_index() * 2);
  const __m512i odd = _mm512_add_epi32(even, _mm512_set1_epi32(1));
  const __m512 low = reinterpret_cast<__m512>(a), high = reinterpret_cast<__m512>(b);
  first = reinterpret_cast<vf32>(_mm512_permutex2var_ps(low, even, high));
  second = reinterpret_cast<vf32>(_mm512_permutex2var_ps(low, odd, high));
}
#else
MLXTS_INLINE vi32 whole_numbers(vf32 v) {
  return reinterpret_cast<vi32>(_mm256_cvtps_epi32(reinterpret_cast<__m256>(v)));
}

MLXTS_INLINE void split_neighbors(vf32 a, vf32 b, vf32& first, vf32& second) {
  const __m256 low = reinterpret_cast<__m256>(a), high = reinterpret_cast<__m256>(b);
  const auto in_order = [](__m256 v) {  // shuffles work in halves
    return reinterpret_cast<vf32>(_mm256_permute4x64_pd(_mm256_castps_pd(v), 0xd8));
  };
  first = in_order(_mm256_shuffle_ps(low, high, 0x88));
  second = in_order(_mm256_shuffle_ps(low, high, 0xdd));
}
#endif

// Of N vectors of numbers one after another, every N-th, beginning with the j-th, becomes v[j]; N a power of two.
template <int N>
void deal(vf32 (&v)[N]) {
  for (int n = 1; n < N; n *= 2) {
    vf32 dealt[N];
    for (int k = 0; k < N; k += 2) split_neighbors(v[k], v[k + 1], dealt[k / 2], dealt[k / 2 + N / 2]);
    for (int k = 0; k < N; ++k) v[k] = dealt[k];
  }
}

// The unit of lanes whose largest numbers are `most`, below 2^100, in so many limbs, the last of which has fewer bits
// or as many.
template <int Limbs, int LastBits>
class LimbUnit {
 public:
  explicit LimbUnit(vf32 most) {
    // 2^e ≤ most·2^kBits / kMost < 2^(e + 1).
    const vi32 e = (as_i32(most * splat(float(1 << kBits) / kMost)) >> 23) - splat_i32(127);
    const vi32 least = splat_i32(-100);  // smaller numbers are nothing beside those of a row that are far larger
    e_ = e > least ? e : least;
  }
  vi32 exponent() const { return e_ + splat_i32(1 - kBits); }
  vf32 unit() const { return power_of_two(exponent()); }
  vf32 inverse() const { return power_of_two(-exponent()); }

 private:
  static constexpr int kBits = 8 * (Limbs - 1) + LastBits - 1;
  // Every limb the largest.
  static constexpr int kMost =
      ((1 << 8 * (Limbs - 1)) - 1) / 255 * 127 * (1 << LastBits) + (1 << (LastBits - 1)) - 1;
  vi32 e_;
};

// The last limbs, of so many bits, of the numbers that meet code vector i, numbers[j] being those of column j of each
// lane's word; what remains of the numbers is for the limbs before. Or each limb times −1.
template <int Bits>
MLXTS_INLINE vi32 take_limbs(vi32 (&numbers)[kPerWord<Bits>], int i, int bits, bool negated) {
  vi32 bytes = {};
  for (int b = 0; b < 4; ++b) {
    vi32& number = numbers[b * kCodeVectors<Bits> + i];
    const vi32 rest = (number + (1 << (bits - 1))) >> bits, limb = number - (rest << bits);
    bytes |= ((negated ? -limb : limb) & 0xff) << (8 * b);
    number = rest;
  }
  return bytes;
}
#endif

#if defined(__AVX512VNNI__)
// Sums of products with one of three limbs count up from the bits of the float 1.5·2^23 units of that limb: while they
// stay below 2^22, they are the bits of that float plus the sum, in units. So nothing is converted.
template <int Limbs>
inline constexpr bool kSumsAreFloats = Limbs == 3;

// A chunk of x in limbs, largest first.
template <int Bits, int Limbs>
struct LimbChunk {
  vi32 limbs[Limbs][kCodeVectors<Bits>];  // four signed bytes a lane
  vf32 unit;                              // of each lane: of one limb, the chunk's own; else that of the section
};
template <int Bits>
struct LimbChunk<Bits, 3> {
  vi32 limbs[3][kCodeVectors<Bits>];
  vi32 start[3];  // from which sums count up: the bits of a float less center·Σ of each lane
  vf32 zero;      // what the floats of all limbs have too much, the same in all of a section
};

// What makes codes centered: center·Σx of each lane.
template <int Bits>
MLXTS_INLINE vi32 center_dot(vi32 sum, vu32 bytes) {
  return dot_int8x4(sum, vu32{} + (Bits == 4 ? 0x08080808u : 0x80808080u), bytes);
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
  constexpr int per = kPerWord<Bits>;
  vf32 v[per], most = {};
  for (uint32_t c = 0; c < chunks; ++c) {
    deal_chunk<Bits>(x + c * kChunk<Bits>, v);
    for (int j = 0; j < per; ++j) most = max(most, max(v[j], -v[j]));
  }
  const LimbUnit<Limbs, 8> unit(most);
  for (uint32_t c = 0; c < chunks; ++c, ++to) {
    deal_chunk<Bits>(x + c * kChunk<Bits>, v);
    vi32 numbers[per];
    for (int j = 0; j < per; ++j) numbers[j] = whole_numbers(v[j] * unit.inverse());
    if constexpr (kSumsAreFloats<Limbs>)
      to->zero = vf32{};
    else
      to->unit = unit.unit();
    for (int k = Limbs - 1; k >= 0; --k) {
      [[maybe_unused]] vi32 dot = {};
      for (int i = 0; i < kCodeVectors<Bits>; ++i) {
        to->limbs[k][i] = take_limbs<Bits>(numbers, i, 8, false);
        if constexpr (kSumsAreFloats<Limbs>) dot = center_dot<Bits>(dot, reinterpret_cast<vu32>(to->limbs[k][i]));
      }
      if constexpr (kSumsAreFloats<Limbs>) {
        const vi32 zero = splat_i32(kFloatOfZero) + ((unit.exponent() + splat_i32(8 * (Limbs - 1 - k))) << 23);
        to->start[k] = zero - dot;
        to->zero += as_f32(zero);
      }
    }
  }
}
#endif

}  // namespace mlxts
