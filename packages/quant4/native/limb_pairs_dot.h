// The matrix-vector product for x in pairs of groups (limb_pairs.h). Rows of W are read as they lie in memory, so that
// little is computed beside products, and the pairs of a section are unrolled.
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

// Whole rows of W that are multiplied together with one row of x: they share the reading of x. A Zen 3 that reads two
// rows by turns takes 1.05 to 1.1 times as long as reading W alone takes, and 1.25 times row by row.
constexpr int kTogether = 2;

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

// As of other vectors (simd.h). Sums that go through it are made in the order in which they are written.
MLXTS_INLINE __m256i in_register(__m256i v) {
  return reinterpret_cast<__m256i>(in_register(reinterpret_cast<vf32>(v)));
}

// Of R rows of W, Σ code·x of each lane, in units of x; of three limbs Σ (code − center)·x, without the last of them
// where x has only zeros there. Of each part four columns of a lane are summed in 16 bits.
template <int R, int Limbs, int Parts>
MLXTS_INLINE void pair_products(const vu32 (&codes)[R][Parts][2], const GroupPair<Limbs, Parts>& x, bool hasLast,
                                vf32 (&products)[R]) {
  static_assert(Parts * 4 * 15 * 128 < 1 << 15);
  __m256i total[R];
  MLXTS_UNROLL
  for (int r = 0; r < R; ++r) {
    total[r] = __m256i{};
    if constexpr (Limbs == 3) total[r] = reinterpret_cast<__m256i>(x.start);
  }
  // Adds limb k of each lane, times so many. What is summed stays in registers, which in another order are too few.
  const auto add_limb = [&](int k, int16_t times) __attribute__((always_inline)) {
    __m256i sums[R];
    MLXTS_UNROLL
    for (int i = 0; i < Parts; ++i) {
      MLXTS_UNROLL
      for (int j = 0; j < 2; ++j) {
        __m256i bytes = reinterpret_cast<__m256i>(x.limbs[k][i][j]);
        if constexpr (R > 1) bytes = in_register(bytes);
        MLXTS_UNROLL
        for (int r = 0; r < R; ++r) {
          const __m256i pairs = _mm256_maddubs_epi16(reinterpret_cast<__m256i>(codes[r][i][j]), bytes);
          sums[r] = i + j == 0 ? pairs : _mm256_add_epi16(sums[r], pairs);
          if constexpr (R > 1) sums[r] = in_register(sums[r]);
        }
      }
    }
    MLXTS_UNROLL
    for (int r = 0; r < R; ++r)
      total[r] = in_register(_mm256_add_epi32(total[r], _mm256_madd_epi16(sums[r], _mm256_set1_epi16(times))));
  };
  if constexpr (Limbs == 1) add_limb(0, 1);
  if constexpr (Limbs == 2) {
    add_limb(0, 256);
    add_limb(1, 1);
  }
  if constexpr (Limbs == 3) {
    constexpr int kLast = kLastBits<Limbs>;
    add_limb(0, int16_t(-(1 << (8 + kLast))));
    add_limb(1, 1 << kLast);
    if (hasLast) add_limb(2, 1);
  }
  MLXTS_UNROLL
  for (int r = 0; r < R; ++r) products[r] = __builtin_convertvector(reinterpret_cast<vi32>(total[r]), vf32);
}

// sums[r·stride + m] += the products of row r of `rows` rows of W and row m of x, of `groups` groups from word `begin`
// on, over lanes; of all groups of a row, =. R rows of W, of which `rows` is a multiple, are multiplied together. Where
// few pairs have last limbs, the others do without.
template <int R, int M, int Limbs, int Parts, typename S, Extent Of, bool FewLast>
void dot_pairs(const WeightRows& w, const PairRows& x, uint32_t begin, uint32_t groups, uint32_t rows, vf32* sums,
               size_t stride, [[maybe_unused]] const LastLimbs& last) {
  // What is fetched for rows that are multiplied together are whole rows, in the order of memory.
  static_assert(R == 1 || Of == Extent::row);
  using Section = PairSection<Limbs, Parts>;
  constexpr float center = kCentered<Limbs> ? kCenter<4> : 0;
  constexpr size_t kPartBytes = kPartColumns / 2, kGroupBytes = Parts * kPartBytes;
  const size_t scaleBytes = bytes_of<S>(w.scaleType), firstScale = begin * 4 / kGroupBytes * scaleBytes;
  const uint8_t* words = w.words + begin * 4;
  const uint8_t *scales = w.scales + firstScale, *biases = w.biases + firstScale;
  const size_t rowBytes = w.nextBytes, scaleRowBytes = w.nextScaleBytes;
  // From the end of these words to those of the next R rows.
  const size_t rest = R * rowBytes - groups * kGroupBytes, scaleRest = R * scaleRowBytes - groups * scaleBytes;
  const uint8_t* const stop = x.sections + groups / kSectionGroups * sizeof(Section);
  const FetchAhead ahead = w.ahead;
  const bool whole = Of == Extent::row || (Of == Extent::any && groups == w.groups);
  for (; rows > 0; rows -= R, sums += R * stride) {
    const uint8_t* section = x.sections;
    const float* xSums = x.sums;
    [[maybe_unused]] const uint8_t* lastOf = last.sections;
    // What is fetched lies ahead of these, which pass R rows while each row is passed once.
    const uint8_t *wordsInOrder = words, *scalesInOrder = scales, *biasesInOrder = biases;
    // Sections are added one after another, so that a row of x has the same sums in whatever parts it is multiplied.
    vf32 acc[R][M];
    MLXTS_UNROLL
    for (int r = 0; r < R; ++r) {
      MLXTS_UNROLL
      for (int m = 0; m < M; ++m) acc[r][m] = whole ? vf32{} : sums[r * stride + m];
    }
    const auto section_of = [&](int m) __attribute__((always_inline)) -> const Section& {
      return *reinterpret_cast<const Section*>(section + m * x.stride);
    };
    const auto add_section = [&](uint32_t n) __attribute__((always_inline)) {
      vf32 scale[R], products[R][M] = {};
      MLXTS_UNROLL
      for (int r = 0; r < R; ++r) {
        scale[r] = load_scales<S>(w.scaleType, scales + r * scaleRowBytes, n);
        vf32 bias = load_scales<S>(w.scaleType, biases + r * scaleRowBytes, n);
        if (center != 0) bias = fma(splat(center), scale[r], bias);
        MLXTS_UNROLL
        for (int m = 0; m < M; ++m) acc[r][m] = fma(bias, load(xSums + m * x.sumStride), acc[r][m]);
      }
      fetch_here<Of>(scalesInOrder, ahead.scales);
      fetch_here<Of>(biasesInOrder, ahead.biases);
      [[maybe_unused]] const uint32_t with = FewLast ? *lastOf++ : 0;
      const auto add_pair = [&]<int P>() __attribute__((always_inline)) {
        if (P >= n) return;
        vu32 codes[R][Parts][2];
        MLXTS_UNROLL
        for (int i = 0; i < Parts; ++i) {
          constexpr int kPartsOfLine = kLineBytes / (2 * kPartBytes);
          const int part = P * Parts + i;
          MLXTS_UNROLL
          for (int r = 0; r < R; ++r) {
            if (part % kPartsOfLine == 0)
              fetch_here<Of>(wordsInOrder, (part / kPartsOfLine * R + r) * kLineBytes + ahead.words);
            const vu32 both = load_part(words + r * rowBytes + part * kPartBytes, kSectionPairs * kGroupBytes,
                                        P + kSectionPairs < n);
            MLXTS_UNROLL
            for (int j = 0; j < 2; ++j) codes[r][i][j] = code_bytes<4>(both, j);
          }
        }
        MLXTS_UNROLL
        for (int m = 0; m < M; ++m) {
          const GroupPair<Limbs, Parts>& pair = section_of(m).pairs[P];
          vf32 dots[R];
          pair_products<R, Limbs, Parts>(codes, pair, !FewLast || (with >> P & 1), dots);
          MLXTS_UNROLL
          for (int r = 0; r < R; ++r) {
            vf32 unit = reinterpret_cast<vf32>(_mm256_permute_ps(reinterpret_cast<__m256>(scale[r]), P * 0x55));
            if constexpr (Limbs == 1) unit *= pair.unit;
            products[r][m] = fma(dots[r], unit, products[r][m]);
          }
        }
      };
      [&]<int... P>(std::integer_sequence<int, P...>) __attribute__((always_inline)) {
        (add_pair.template operator()<P>(), ...);
      }(std::make_integer_sequence<int, kSectionPairs>());
      MLXTS_UNROLL
      for (int r = 0; r < R; ++r) {
        MLXTS_UNROLL
        for (int m = 0; m < M; ++m) {
          if constexpr (Limbs > 1)
            acc[r][m] = fma(products[r][m], section_of(m).unit, acc[r][m]);
          else
            acc[r][m] += products[r][m];
        }
      }
      words += n * kGroupBytes, scales += n * scaleBytes, biases += n * scaleBytes;
      wordsInOrder += R * n * kGroupBytes;
      scalesInOrder += R * n * scaleBytes, biasesInOrder += R * n * scaleBytes;
      section += sizeof(Section), xSums += kSectionGroups;
    };
    if constexpr (Of == Extent::any) {
      while (section != stop) add_section(kSectionGroups);
      if (groups % kSectionGroups > 0) add_section(groups % kSectionGroups);
    } else {
      do add_section(kSectionGroups);
      while (section != stop);
    }
    MLXTS_UNROLL
    for (int r = 0; r < R; ++r) {
      MLXTS_UNROLL
      for (int m = 0; m < M; ++m) sums[r * stride + m] = acc[r][m];
    }
    if constexpr (R > 1 || Of != Extent::row) words += rest, scales += scaleRest, biases += scaleRest;
  }
}
#endif

}  // namespace mlxts
