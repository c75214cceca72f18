// x in limbs (limbs.h) for products with AVX2, where it is instructions that such products wait for: pairs of groups.
// Of a section of eight groups, group p meets one half of the lanes and group p + 4 the other, so that a whole group is
// summed in four lanes before its sum is scaled, and one shuffle puts both scales where they belong.
#pragma once
#include "int8_activations.h"

namespace mlxts {

#if MLXTS_LIMB_PAIRS
inline constexpr uint32_t kSectionGroups = kLanes, kSectionPairs = kSectionGroups / 2;
// Columns of a group that are loaded at once: those of half the lanes.
inline constexpr uint32_t kPartColumns = kLanes / 2 * kPerWord<4>;
// Of x, so much is multiplied at once: what stays in the first cache beside W.
inline constexpr size_t kPairBytes = 16 << 10;

// Two groups of x, limbs largest first: four signed bytes a lane, of even columns and of odd ones.
template <int Limbs, int Parts>
struct GroupPair {
  vi32 limbs[Limbs][Parts][2];
};
template <int Parts>
struct GroupPair<1, Parts> {
  vi32 limbs[1][Parts][2];
  vf32 unit;  // of each lane
};
template <int Parts>
struct GroupPair<3, Parts> {
  vi32 limbs[3][Parts][2];
  vi32 start;  // from which sums count up: less center·Σx of each lane
};

template <int Limbs, int Parts>
struct PairSection {
  vf32 unit;  // of each lane; not of one limb
  GroupPair<Limbs, Parts> pairs[kSectionPairs];
};

// body<Parts>() for groups of 2^shift.
template <typename Body>
MLXTS_INLINE void with_parts(uint32_t shift, Body body) {
  if (shift == 5) return body.template operator()<1>();
  if (shift == 6) return body.template operator()<2>();
  body.template operator()<4>();
}

// Bytes of so many groups of a row in sections, the last of which ends with its last pair.
constexpr size_t pair_section_bytes(int limbs, uint32_t parts, size_t groups) {
  const size_t pair = sizeof(vi32) * (2 * uint32_t(limbs) * parts + (limbs != 2));
  const size_t left = groups % kSectionGroups, pairs = left < kSectionPairs ? left : kSectionPairs;
  return groups / kSectionGroups * (sizeof(vf32) + kSectionPairs * pair) + (left > 0) * sizeof(vf32) + pairs * pair;
}
static_assert(pair_section_bytes(1, 4, kSectionGroups) == sizeof(PairSection<1, 4>) &&
              pair_section_bytes(2, 2, kSectionGroups) == sizeof(PairSection<2, 2>) &&
              pair_section_bytes(3, 1, kSectionGroups) == sizeof(PairSection<3, 1>));

// AVX2 has three limbs in units of 2^15, 2^7 and 1, the first of them negated: products in 16 bits are multiplied by
// −2^15, which a signed number of 16 bits can be, and need no shift.
template <int Limbs>
inline constexpr int kLastBits = Limbs == 3 ? 7 : 8;

// A part of two groups as it meets the lanes: v[j] has column j of each lane's word.
MLXTS_INLINE void deal_part(const float* first, const float* second, vf32 (&v)[kPerWord<4>]) {
  for (int j = 0; j < 4; ++j) {
    v[j] = load(first + j * kLanes);
    v[j + 4] = load(second + j * kLanes);
  }
  deal(v);
}

// One half of the lanes.
MLXTS_INLINE vf32 halves(float first, float second) {
  return reinterpret_cast<vf32>(_mm256_set_m128(_mm_set1_ps(second), _mm_set1_ps(first)));
}

// Sum of the first half of the lanes, and of the second.
MLXTS_INLINE void add_halves(vf32 v, float& first, float& second) {
  first = (v[0] + v[1]) + (v[2] + v[3]);
  second = (v[4] + v[5]) + (v[6] + v[7]);
}

// The section of x, zero beyond its groups, as so many pairs. Limbs hold numbers that are finite and below 2^100. One
// limb holds whole numbers of a byte (int8_activations.h), and then sums[g] becomes Σ of group g as it is multiplied.
template <int Limbs, int Parts>
void order_pairs(const float* x, uint32_t pairs, uint8_t* bytes, [[maybe_unused]] float* sums) {
  constexpr uint32_t groupSize = Parts * kPartColumns, half = kSectionPairs * groupSize;
  constexpr int per = kPerWord<4>;
  auto& to = *reinterpret_cast<PairSection<Limbs, Parts>*>(bytes);
  vf32 v[per], inverse = {};
  if constexpr (Limbs > 1) {
    vf32 most = {};
    for (uint32_t p = 0; p < pairs; ++p)
      for (int part = 0; part < Parts; ++part) {
        const float* first = x + p * groupSize + part * kPartColumns;
        deal_part(first, first + half, v);
        for (int j = 0; j < per; ++j) most = max(most, max(v[j], -v[j]));
      }
    const LimbUnit<Limbs, kLastBits<Limbs>> unit(most);
    inverse = unit.inverse();
    to.unit = unit.unit();
  }
  for (uint32_t p = 0; p < pairs; ++p) {
    const float *first = x + p * groupSize, *second = first + half;
    GroupPair<Limbs, Parts>& pair = to.pairs[p];
    if constexpr (Limbs == 1) {
      const ByteUnit one = byte_unit(first, groupSize), other = byte_unit(second, groupSize);
      inverse = halves(one.inverse, other.inverse);
      pair.unit = halves(one.unit, other.unit);
    }
    vi32 sum = {};
    for (int part = 0; part < Parts; ++part) {
      deal_part(first + part * kPartColumns, second + part * kPartColumns, v);
      vi32 numbers[per];
      for (int j = 0; j < per; ++j) sum += numbers[j] = whole_numbers(v[j] * inverse);
      for (int k = Limbs - 1; k >= 0; --k)
        for (int i = 0; i < 2; ++i)
          pair.limbs[k][part][i] =
              take_limbs<4>(numbers, i, k == Limbs - 1 ? kLastBits<Limbs> : 8, Limbs == 3 && k == 0);
    }
    if constexpr (Limbs == 1)
      add_halves(__builtin_convertvector(sum, vf32) * pair.unit, sums[p], sums[p + kSectionPairs]);
    if constexpr (Limbs == 3) pair.start = sum * splat_i32(-int(kCenter<4>));
  }
}
#endif

}  // namespace mlxts
