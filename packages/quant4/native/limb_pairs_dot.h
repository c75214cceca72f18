// The matrix-vector product for x in pairs of groups (limb_pairs.h). Rows of W are read one after another, as they lie
// in memory, so that little is computed beside products, and the pairs of a section are unrolled.
#pragma once
#include "limb_pairs.h"
#include "matvec_dot.h"

namespace mlxts {

#if MLXTS_LIMB_PAIRS
// Rows of x from the section that meets the first words on.
struct PairRows {
  const uint8_t* sections;
  size_t stride;  // bytes from row to row
  const float* sums;
  size_t sumStride;
};

// Which pairs of each section of one row of x have a last limb other than 0. Of bf16 x few have, where numbers are of
// like size: a number of at least 2^-8 of the largest of its section is whole without that limb.
struct LastLimbs {
  // Of what is multiplied at once, which is rounded up to whole sections.
  static constexpr uint32_t kMostSections = kPairBytes / sizeof(PairSection<3, 1>) + 1;
  uint8_t sections[kMostSections];  // a bit for each pair
  bool few;                         // fewer than 7/8 have one: asking for each costs less than it saves
};
template <int Parts>
LastLimbs last_limbs(const uint8_t* bytes, uint32_t groups) {
  LastLimbs last = {};
  const auto* sections = reinterpret_cast<const PairSection<3, Parts>*>(bytes);
  uint32_t count = 0, all = 0;
  for (uint32_t s = 0; s * kSectionGroups < groups; ++s)
    for (uint32_t p = 0; p < kSectionPairs && s * kSectionGroups + p < groups; ++p, ++all) {
      vi32 any = {};
      for (const auto& part : sections[s].pairs[p].limbs[2]) any |= part[0] | part[1];
      const __m256i bits = reinterpret_cast<__m256i>(any);
      const bool has = !_mm256_testz_si256(bits, bits);
      last.sections[s] |= uint8_t(has << p);
      count += has;
    }
  last.few = count < all - all / 8;
  return last;
}

// What is multiplied of each row of W: all of it, in whole sections; a part of whole sections; or either, or what ends
// within a section.
enum class Extent { row, part, any };

// As fetch, in the place where it stands: the compiler would bring those of an unrolled loop together, and several
// lines at once take up to 10 % longer to come. Parts of rows are no stream that a processor would follow by itself:
// it waits for fewer lines of its first cache than of its second.
template <Extent Of>
MLXTS_INLINE void fetch_here(const uint8_t* p, ptrdiff_t ahead) {
  const auto& line = *reinterpret_cast<const uint8_t*>(uintptr_t(p) + uintptr_t(ahead));
  if constexpr (Of == Extent::part)
    asm volatile("prefetcht1 %0" ::"m"(line));
  else
    asm volatile("prefetcht0 %0" ::"m"(line));
}

// The words of a part of a group, and of one `apart` bytes further on; without that one, zeros.
MLXTS_INLINE vu32 load_part(const uint8_t* at, size_t apart, bool both) {
  const auto load = [](const uint8_t* p) { return _mm_loadu_si128(reinterpret_cast<const __m128i*>(p)); };
  const __m128i first = load(at);
  const __m256i words = both ? _mm256_set_m128i(load(at + apart), first) : _mm256_zextsi128_si256(first);
  return in_register(reinterpret_cast<vu32>(words));
}

// Σ code·x of each lane, in units of x; of three limbs Σ (code − center)·x, without the last of them where x has only
// zeros there. Of each part four columns of a lane are summed in 16 bits.
template <int Limbs, int Parts>
MLXTS_INLINE vf32 pair_product(const vu32 (&codes)[Parts][2], const GroupPair<Limbs, Parts>& x, bool hasLast) {
  static_assert(Parts * 4 * 15 * 128 < 1 << 15);
  // Limb k of each lane, times so many.
  const auto limb = [&](int k, int16_t times) __attribute__((always_inline)) {
    const auto part = [&](int i) __attribute__((always_inline)) {
      const auto pairs = [&](int j) __attribute__((always_inline)) {
        return _mm256_maddubs_epi16(reinterpret_cast<__m256i>(codes[i][j]),
                                    reinterpret_cast<__m256i>(x.limbs[k][i][j]));
      };
      return _mm256_add_epi16(pairs(0), pairs(1));
    };
    __m256i sum = part(0);
    if constexpr (Parts > 1) sum = _mm256_add_epi16(sum, part(1));
    if constexpr (Parts > 2) sum = _mm256_add_epi16(sum, _mm256_add_epi16(part(2), part(3)));
    return reinterpret_cast<vi32>(_mm256_madd_epi16(sum, _mm256_set1_epi16(times)));
  };
  if constexpr (Limbs == 1) return __builtin_convertvector(limb(0, 1), vf32);
  if constexpr (Limbs == 2) return __builtin_convertvector(limb(0, 256) + limb(1, 1), vf32);
  if constexpr (Limbs == 3) {
    constexpr int kLast = kLastBits<Limbs>;
    vi32 low = x.start;
    if (hasLast) low += limb(2, 1);
    return __builtin_convertvector(limb(0, int16_t(-(1 << (8 + kLast)))) + limb(1, 1 << kLast) + low, vf32);
  }
}

// sums[r·stride + m] += the products of row r of `rows` rows of W and row m of x, of `groups` groups from word `begin`
// on, over lanes; of all groups of a row, =. Where few pairs have last limbs, the others do without.
template <int M, int Limbs, int Parts, typename S, Extent Of, bool FewLast>
void dot_pairs(const WeightRows& w, const PairRows& x, uint32_t begin, uint32_t groups, uint32_t rows, vf32* sums,
               size_t stride, [[maybe_unused]] const LastLimbs& last) {
  using Section = PairSection<Limbs, Parts>;
  constexpr float center = kCentered<Limbs> ? kCenter<4> : 0;
  constexpr size_t kPartBytes = kPartColumns / 2, kGroupBytes = Parts * kPartBytes;
  const size_t scaleBytes = bytes_of<S>(w.scaleType), firstScale = begin * 4 / kGroupBytes * scaleBytes;
  const uint8_t* words = w.words + begin * 4;
  const uint8_t *scales = w.scales + firstScale, *biases = w.biases + firstScale;
  // From the end of these words to the next row's.
  const size_t rest = w.nextBytes - groups * kGroupBytes, scaleRest = w.nextScaleBytes - groups * scaleBytes;
  const uint8_t* const stop = x.sections + groups / kSectionGroups * sizeof(Section);
  const FetchAhead ahead = w.ahead;
  const bool whole = Of == Extent::row || (Of == Extent::any && groups == w.groups);
  for (; rows > 0; --rows, sums += stride) {
    const uint8_t* section = x.sections;
    const float* xSums = x.sums;
    [[maybe_unused]] const uint8_t* lastOf = last.sections;
    // Sections are added one after another, so that a row of x has the same sums in whatever parts it is multiplied.
    vf32 acc[M];
    MLXTS_UNROLL
    for (int m = 0; m < M; ++m) acc[m] = whole ? vf32{} : sums[m];
    const auto section_of = [&](int m) __attribute__((always_inline)) -> const Section& {
      return *reinterpret_cast<const Section*>(section + m * x.stride);
    };
    const auto add_section = [&](uint32_t n) __attribute__((always_inline)) {
      const vf32 scale = load_scales<S>(w.scaleType, scales, n);
      vf32 bias = load_scales<S>(w.scaleType, biases, n);
      fetch_here<Of>(scales, ahead.scales);
      fetch_here<Of>(biases, ahead.biases);
      if (center != 0) bias = fma(splat(center), scale, bias);
      MLXTS_UNROLL
      for (int m = 0; m < M; ++m) acc[m] = fma(bias, load(xSums + m * x.sumStride), acc[m]);
      vf32 products[M] = {};
      [[maybe_unused]] const uint32_t with = FewLast ? *lastOf++ : 0;
      const auto add_pair = [&]<int P>() __attribute__((always_inline)) {
        if (P >= n) return;
        vu32 codes[Parts][2];
        MLXTS_UNROLL
        for (int i = 0; i < Parts; ++i) {
          constexpr int kPartsOfLine = kLineBytes / (2 * kPartBytes);
          const int part = P * Parts + i;
          if (part % kPartsOfLine == 0) fetch_here<Of>(words, part / kPartsOfLine * kLineBytes + ahead.words);
          const vu32 both = load_part(words + part * kPartBytes, kSectionPairs * kGroupBytes, P + kSectionPairs < n);
          MLXTS_UNROLL
          for (int j = 0; j < 2; ++j) codes[i][j] = code_bytes<4>(both, j);
        }
        const vf32 ofGroups = reinterpret_cast<vf32>(_mm256_permute_ps(reinterpret_cast<__m256>(scale), P * 0x55));
        MLXTS_UNROLL
        for (int m = 0; m < M; ++m) {
          const GroupPair<Limbs, Parts>& pair = section_of(m).pairs[P];
          vf32 unit = ofGroups;
          if constexpr (Limbs == 1) unit *= pair.unit;
          const vf32 product = pair_product<Limbs, Parts>(codes, pair, !FewLast || (with >> P & 1));
          products[m] = fma(product, unit, products[m]);
        }
      };
      [&]<int... P>(std::integer_sequence<int, P...>) __attribute__((always_inline)) {
        (add_pair.template operator()<P>(), ...);
      }(std::make_integer_sequence<int, kSectionPairs>());
      MLXTS_UNROLL
      for (int m = 0; m < M; ++m) {
        if constexpr (Limbs > 1)
          acc[m] = fma(products[m], section_of(m).unit, acc[m]);
        else
          acc[m] += products[m];
      }
      words += n * kGroupBytes, scales += n * scaleBytes, biases += n * scaleBytes;
      section += sizeof(Section), xSums += kSectionGroups;
    };
    if constexpr (Of == Extent::any) {
      while (section != stop) add_section(kSectionGroups);
      if (groups % kSectionGroups > 0) add_section(groups % kSectionGroups);
    } else {
      do add_section(kSectionGroups);
      while (section != stop);
    }
    for (int m = 0; m < M; ++m) sums[m] = acc[m];
    if constexpr (Of != Extent::row) words += rest, scales += scaleRest, biases += scaleRest;
  }
}
#endif

}  // namespace mlxts
