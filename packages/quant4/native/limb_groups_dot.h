// The matrix-vector product for x in limbs (limbs.h) with AVX2 and groups of 64 codes of 4 bits, so that a chunk is one
// group. There it is instructions that such products wait for: rows of W are read one after another, as they lie in
// memory, so that little is computed beside products, and the eight chunks of a section are unrolled.
#pragma once
#include "limbs_dot.h"

namespace mlxts {

#if MLXTS_LIMB_GROUPS
inline constexpr uint32_t kSectionChunks = kLanes;

// Whether codes of so many bits in groups of 2^shift are multiplied so.
template <int Bits>
inline bool chunks_are_groups(uint32_t shift) {
  return kInLimbs<Bits> && 1u << shift == uint32_t(kChunk<Bits>);
}

// Which chunks of each section of one row of x have a last limb other than 0. Of bf16 x few have, where numbers are of
// like size: a number of at least 2^-8 of the largest of its section is whole without that limb.
struct LastLimbs {
  static constexpr uint32_t kMostSections = 16;
  uint8_t sections[kMostSections];  // a bit for each chunk
  bool few;                         // fewer than 7/8 have one: asking for each costs less than it saves
};
template <int Bits>
LastLimbs last_limbs(const LimbChunk<Bits, 3>* x, uint32_t chunks) {
  LastLimbs last = {};
  if (chunks > LastLimbs::kMostSections * kSectionChunks) return last;
  uint32_t count = 0;
  for (uint32_t c = 0; c < chunks; ++c) {
    const __m256i any = reinterpret_cast<__m256i>(x[c].limbs[2][0] | x[c].limbs[2][1]);
    const bool has = !_mm256_testz_si256(any, any);
    last.sections[c / kSectionChunks] |= uint8_t(has << c % kSectionChunks);
    count += has;
  }
  last.few = count < chunks - chunks / 8;
  return last;
}

// What is multiplied of each row of W: all of it, in whole sections; a part of whole sections; or anything.
enum class Extent { row, sections, any };

// As fetch, in the place where it stands: the compiler would bring those of an unrolled loop together, and several
// lines at once take up to 10 % longer to come.
MLXTS_INLINE void fetch_here(const uint8_t* p, ptrdiff_t ahead) {
  asm volatile("prefetcht0 %0" ::"m"(*reinterpret_cast<const uint8_t*>(uintptr_t(p) + uintptr_t(ahead))));
}

// sums[r·stride + m] += the products of row r of `rows` rows of W and row m of x, of the words begin … end − 1, over
// lanes; of whole rows, =. Where few chunks have last limbs, the others do without.
template <int Bits, int M, int Limbs, typename S, Extent Of, bool FewLast>
void dot_limb_groups(const WeightRows& w, const XRows<LimbChunk<Bits, Limbs>>& x, uint32_t begin, uint32_t end,
                     uint32_t rows, vf32* sums, size_t stride, [[maybe_unused]] const LastLimbs& last) {
  constexpr float center = kCentered<Limbs> ? kCenter<Bits> : 0;
  const size_t scaleBytes = bytes_of<S>(w.scaleType), first = begin / kLanes, chunks = (end - begin) / kLanes;
  const uint8_t* words = w.words + first * kChunkBytes;
  const uint8_t *scales = w.scales + first * scaleBytes, *biases = w.biases + first * scaleBytes;
  // From the end of these words to the next row's.
  const size_t rest = w.nextBytes - chunks * kChunkBytes, scaleRest = w.nextScaleBytes - chunks * scaleBytes;
  const LimbChunk<Bits, Limbs>* const stop = x.ordered + first + chunks;
  const FetchAhead ahead = w.ahead;
  alignas(vf32) float ofGroups[kLanes];
  for (; rows > 0; --rows, sums += stride) {
    const LimbChunk<Bits, Limbs>* section = x.ordered + first;
    const float* xSums = x.sums + first;
    [[maybe_unused]] const uint8_t* lastOf = last.sections;
    vf32 acc[M] = {}, ofBiases[M] = {};
    const auto add_section = [&](uint32_t n) __attribute__((always_inline)) {
      const vf32 scale = load_scales<S>(w.scaleType, scales, n);
      vf32 bias = load_scales<S>(w.scaleType, biases, n);
      fetch_here(scales, ahead.scales);
      fetch_here(biases, ahead.biases);
      if (center != 0) bias = fma(splat(center), scale, bias);
      MLXTS_UNROLL
      for (int m = 0; m < M; ++m) ofBiases[m] = fma(bias, load(xSums + m * x.sumStride), ofBiases[m]);
      // From memory, a scale comes to all lanes without a shuffle. The compiler is kept from holding all addresses.
      store(ofGroups, scale);
      const float* groups = ofGroups;
      asm("" : "+r"(groups));
      vf32 products[M] = {};
      [[maybe_unused]] const uint32_t with = FewLast ? *lastOf++ : 0;
      const auto add_chunk = [&](uint32_t chunk) __attribute__((always_inline)) {
        const uint8_t* at = words + chunk * kChunkBytes;
        const vu32 loaded = in_register(load_words(at));
        if (chunk * kChunkBytes % kLineBytes == 0) fetch_here(at, ahead.words);
        vu32 codes[kCodeVectors<Bits>];
        MLXTS_UNROLL
        for (int i = 0; i < kCodeVectors<Bits>; ++i) codes[i] = code_bytes<Bits>(loaded, i);
        const vf32 ofGroup = reinterpret_cast<vf32>(_mm256_broadcast_ss(groups + chunk));
        MLXTS_UNROLL
        for (int m = 0; m < M; ++m) {
          const LimbChunk<Bits, Limbs>& of = section[m * x.stride + chunk];
          const vf32 unit = Limbs == 1 ? ofGroup * of.unit : ofGroup;
          const vf32 product = limb_product<Bits, Limbs>(codes, of, !FewLast || (with >> chunk & 1));
          products[m] = fma(product, unit, products[m]);
        }
      };
      if (n == kSectionChunks) {
        MLXTS_UNROLL
        for (uint32_t chunk = 0; chunk < kSectionChunks; ++chunk) add_chunk(chunk);
      } else {
        for (uint32_t chunk = 0; chunk < n; ++chunk) add_chunk(chunk);
      }
      MLXTS_UNROLL
      for (int m = 0; m < M; ++m) {
        if constexpr (Limbs > 1)
          acc[m] = fma(products[m], section[m * x.stride].unit, acc[m]);
        else
          acc[m] += products[m];
      }
      words += n * kChunkBytes, scales += n * scaleBytes, biases += n * scaleBytes;
      section += n, xSums += n;
    };
    if constexpr (Of != Extent::any) {
      do add_section(kSectionChunks);
      while (section != stop);
    } else {
      size_t left = chunks;
      for (; left >= kSectionChunks; left -= kSectionChunks) add_section(kSectionChunks);
      if (left > 0) add_section(uint32_t(left));
    }
    for (int m = 0; m < M; ++m) {
      const vf32 sum = acc[m] + ofBiases[m];
      sums[m] = Of == Extent::row ? sum : sums[m] + sum;
    }
    if constexpr (Of != Extent::row) words += rest, scales += scaleRest, biases += scaleRest;
  }
}
#endif

}  // namespace mlxts
