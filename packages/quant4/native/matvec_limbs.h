// Products of 16 rows of W with few rows of x in limbs (limb_rows.h). The lanes are the rows of W: their words are
// transposed, so that codes of four columns meet four bytes of x, and sums are scaled once for a group. A row of x has
// the same products whatever others are there.
#pragma once
#include "limb_rows.h"
#include "matvec_dot.h"
#include "processor.h"

namespace mlxts {

#if defined(__AVX512VNNI__) && !defined(__AMX_INT8__)
constexpr size_t kLine = 64;                     // bytes
constexpr uint32_t kLimbEach = kLanes / kParts;  // neighbors among rows of W
constexpr uint32_t kSectionGroups = kLanes;  // whose scales are widened, and whose products are summed, at once
constexpr int kMostLimbRows = 8;             // of x

// Rows of x in limbs.
struct LimbRows {
  const int8_t* limbs;
  const float* groups;  // LimbGroup
  uint32_t m, limbCount;
};

// Whether the processor's reading of memory likes rows far apart (matvec_dot.h), asked when the library is loaded: a
// variable of a function would need a C++ library.
inline const bool kFarIsFaster = made_by_intel();
// Rows of x in so many limbs from which on lanes are rows of W. Against 4096 × 4096 codes from memory, a core of a Zen
// 5 takes so, and word by word (limbs_dot.h): for two rows in three limbs 600 and 720 µs; in two limbs, for three rows
// 580 and 400, for four 530 and 560.
inline uint32_t least_group_rows(uint32_t limbs) {
  if (kFarIsFaster) return 1;
  return limbs == 3 ? 2 : limbs == 2 ? 4 : 3;
}

// 16 rows of W: four from each of four places. What comes next is fetched into the second cache meanwhile: from each
// place where they lie far apart, else in the order of memory. Far apart, each row's next line is also fetched into the
// first cache: a product from a cache takes 4 to 13 % less time so.
struct LimbBlock {
  const WeightRows& w;
  bool far;
  const uint8_t *words, *scales, *biases;  // of the first row
  size_t part, next;                       // bytes to the first row of the next place, and to the next row
  size_t scalePart, scaleNext;
  const uint8_t* ahead;  // words
  size_t aheadPart, aheadStep;
  ptrdiff_t scalesAhead, biasesAhead;  // bytes from a row's to those of the row that comes next in its place
};

// Scales, and biases of centered codes, in f32: [group][row].
struct SectionScales {
  alignas(64) float scales[kSectionGroups][kLanes], biases[kSectionGroups][kLanes];

  // Those of the section that begins at this group.
  template <int Bits>
  __attribute__((noinline)) void load(const LimbBlock& b, uint32_t group) {
    const ScaleType type = b.w.scaleType;
    if (type == ScaleType::bf16)
      load_as<Bits, bf16>(b, group);
    else if (type == ScaleType::f16)
      load_as<Bits, f16>(b, group);
    else
      load_as<Bits, float>(b, group);
  }

 private:
  template <int Bits, typename S>
  MLXTS_INLINE void load_as(const LimbBlock& b, uint32_t group) {
    const uint32_t n = b.w.groups - group;
    vf32 scale[kLanes], bias[kLanes];
    for (uint32_t r = 0; r < uint32_t(kLanes); ++r) {
      const size_t at = group * sizeof(S) + r / kLimbEach * b.scalePart + r % kLimbEach * b.scaleNext;
      fetch_second_cache(b.scales + at, b.scalesAhead);
      fetch_second_cache(b.biases + at, b.biasesAhead);
      scale[r] = load_scales<S>(b.scales + at, n);
      bias[r] = fma(splat(kCenter<Bits>), scale[r], load_scales<S>(b.biases + at, n));
    }
    transpose(scale);
    transpose(bias);
    MLXTS_UNROLL
    for (int g = 0; g < kLanes; ++g) {
      store(scales[g], scale[g]);
      store(biases[g], bias[g]);
    }
  }
};

// Four words of each row, from `at` on: v[i] has word i of each. Of rows that are four apart, they need to change
// places within a quarter of a vector only.
MLXTS_INLINE void load_four_words(const LimbBlock& b, size_t at, vu32 (&v)[4]) {
  MLXTS_UNROLL
  for (int r = 0; r < 4; ++r) {
    const uint8_t* row = b.words + at + r * b.next;
    const auto four = [&](int part) {
      return _mm_loadu_si128(reinterpret_cast<const __m128i*>(row + part * b.part));
    };
    __m512i all = _mm512_zextsi128_si512(four(0));
    all = _mm512_maskz_inserti32x4(0xffff, all, four(1), 1);
    all = _mm512_maskz_inserti32x4(0xffff, all, four(2), 2);
    v[r] = reinterpret_cast<vu32>(_mm512_maskz_inserti32x4(0xffff, all, four(3), 3));
  }
  transpose_blocks4(v[0], v[1], v[2], v[3]);
}

// c[m] += scale·(codes·x) + bias·Σx of a group, whose words are the bytes at … end − 1 of each row; x and its group are
// those of the first of M rows, xStride bytes apart.
template <int Bits, int Limbs, int M>
MLXTS_INLINE void add_group(const LimbBlock& b, size_t at, size_t end, const int8_t* x, size_t xStride,
                            const LimbGroup<Limbs>* groups, vf32 scale, vf32 bias, vf32 (&c)[M]) {
  // Few sums would wait for each other: the processor adds to several sets of them at the same time.
  constexpr int kSteps = kPerWord<Bits> / 4, kSets = M * Limbs < 4 ? 4 : M * Limbs < 8 ? 2 : 1;
  vi32 sums[kSets][M][Limbs] = {};
  MLXTS_UNROLL
  for (int m = 0; m < M; ++m) {
    MLXTS_UNROLL
    for (int l = 0; l < Limbs; ++l) sums[0][m][l] = splat_i32(groups[m].start[l]);
  }
  for (; at < end; at += 16) {
    const uint8_t* ahead = b.ahead + at / 16 * b.aheadStep;
    MLXTS_UNROLL
    for (uint32_t i = 0; i < kParts; ++i) fetch_second_cache(ahead, ptrdiff_t(i * b.aheadPart));
    if (b.far) {
      const uint8_t* line = b.words + at + kLine + at / 16 % kLimbEach * b.next;
      MLXTS_UNROLL
      for (uint32_t i = 0; i < kParts; ++i) fetch(line, ptrdiff_t(i * b.part));
    }
    vu32 words[4];
    load_four_words(b, at, words);
    MLXTS_UNROLL
    for (int i = 0; i < 4 * kSteps; ++i, x += 4 * Limbs) {
      const vu32 codes = code_bytes<Bits>(words[i / kSteps], i % kSteps);
      MLXTS_UNROLL
      for (int m = 0; m < M; ++m) {
        MLXTS_UNROLL
        for (int l = 0; l < Limbs; ++l) {
          vi32& sum = sums[i % kSets][m][l];
          sum = dot_int8x4(sum, codes, x + m * xStride + 4 * l);
        }
      }
    }
  }
  MLXTS_UNROLL
  for (int m = 0; m < M; ++m) {
    MLXTS_UNROLL
    for (int l = 0; l < Limbs; ++l) {
      MLXTS_UNROLL
      for (int set = 1; set < kSets; ++set) sums[0][m][l] += sums[set][m][l];
    }
    c[m] = fma(groups[m].dot(sums[0][m]), scale, fma(splat(groups[m].sum), bias, c[m]));
  }
}

// The products of 16 rows of W and of M rows of x, biases of groups included: y[m·16 + r]. Each section is summed by
// itself, so that very long rows lose nothing.
template <int Bits, int Limbs, int M>
__attribute__((noinline)) void dot_limb_rows(const LimbBlock& b, const LimbRows& x, float* y) {
  const uint32_t shift = b.w.shift, groupSize = 1u << shift, cols = b.w.groups << shift;
  const size_t groupBytes = groupSize * Bits / 8;
  const auto* groups = reinterpret_cast<const LimbGroup<Limbs>*>(x.groups);
  SectionScales section;
  vf32 total[M] = {}, c[M] = {};
  for (uint32_t g = 0; g < b.w.groups; ++g) {
    const uint32_t in = g % kSectionGroups, k = g << shift, k0 = k / kCodeDepth * kCodeDepth;
    const uint32_t n = panel_columns(cols, k0);
    if (in == 0) {
      section.load<Bits>(b, g);
      MLXTS_UNROLL
      for (int m = 0; m < M; ++m) {
        total[m] += c[m];
        c[m] = vf32{};
      }
    }
    const int8_t* from = x.limbs + Limbs * (panel_row(M, k0, n, 0) + k - k0);
    add_group<Bits, Limbs, M>(b, g * groupBytes, (g + 1) * groupBytes, from, Limbs * n, groups + size_t(g) * M,
                              load(section.scales[in]), load(section.biases[in]), c);
  }
  for (int m = 0; m < M; ++m) store(y + m * kLanes, total[m] + c[m]);
}

template <int Bits>
void dot_limb_block(const LimbBlock& b, const LimbRows& x, float* y) {
  const auto with = [&]<int Limbs>(std::integral_constant<int, Limbs>) {
    [&]<int... Less>(std::integer_sequence<int, Less...>) {
      ((x.m == Less + 1 ? dot_limb_rows<Bits, Limbs, Less + 1>(b, x, y) : void()), ...);
    }(std::make_integer_sequence<int, kMostLimbRows>());
  };
  if (x.limbCount == 1) return with(std::integral_constant<int, 1>());
  if (x.limbCount == 2) return with(std::integral_constant<int, 2>());
  with(std::integral_constant<int, 3>());
}

// The products of `count` rows of W and of all rows of x: y[m·16 + r].
template <int Bits>
void multiply_limb_rows(const WeightRows& w, const LimbRows& x, uint32_t count, bool far, float* y) {
  const size_t next = w.nextBytes, scaleNext = w.nextScaleBytes, part = far ? w.rowBytes : kLimbEach * next;
  const ptrdiff_t rows = far ? kLimbEach : count;  // from one block to the next
  const ptrdiff_t ahead = rows * ptrdiff_t(next) + w.ahead.words, scalesAhead = rows * ptrdiff_t(scaleNext);
  LimbBlock b = {w, far, w.words, w.scales, w.biases, part, next, far ? w.scaleRowBytes : kLimbEach * scaleNext,
                 scaleNext,
                 reinterpret_cast<const uint8_t*>(uintptr_t(w.words) + uintptr_t(ahead)), far ? part : kLine,
                 far ? kLine : kParts * kLine,
                 scalesAhead + w.ahead.scales,
                 scalesAhead + w.ahead.biases};
  if (count == uint32_t(kLanes)) return dot_limb_block<Bits>(b, x, y);
  // Of fewer rows, each has four lanes, or all of them.
  alignas(64) float some[kMostLimbRows * kLanes];
  b.next = b.scaleNext = 0;
  for (uint32_t row = 0, n; row < count; row += n) {
    n = count - row < kParts ? 1 : kParts;
    b.part = n == 1 ? 0 : next;
    b.scalePart = n == 1 ? 0 : scaleNext;
    dot_limb_block<Bits>(b, x, some);
    for (uint32_t m = 0; m < x.m; ++m)
      for (uint32_t i = 0; i < n; ++i) y[m * kLanes + row + i] = some[m * kLanes + i * kLimbEach];
    b.words += n * next;
    b.scales += n * scaleNext;
    b.biases += n * scaleNext;
  }
}
extern template void multiply_limb_rows<4>(const WeightRows&, const LimbRows&, uint32_t, bool, float*);
extern template void multiply_limb_rows<8>(const WeightRows&, const LimbRows&, uint32_t, bool, float*);
#endif

}  // namespace mlxts
