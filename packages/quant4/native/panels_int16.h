// Panels of codes of 4 bits as numbers of 16 bits, for rows of x in whole numbers of 15 bits: for processors with AVX2
// alone, whose products of such numbers, summed in 32 bits, take half the time of those of f32.
#pragma once
#include <bit>

#include "int8_activations.h"
#include "panel_block.h"
#include "processor.h"

namespace mlxts {

#if defined(__AVX2__) && !defined(__AVX512VNNI__)
// What is added to the numbers of x where sums are added as floats: then all are positive, and so are the sums of their
// products with codes.
constexpr int32_t kInt16Zero = 1 << 14;
// Columns of a group whose sums stay below 2^24: neither code nor number is negative, and those of a group add up to
// 2^14 each at most (order_int16).
constexpr uint32_t kFloatSumColumns = 64;
static_assert(15 * kFloatSumColumns * kInt16Zero < 1 << 24);

// A group of a row of x: numbers in units.
struct Int16Group {
  float unit;  // negative where the numbers are −x
  float sum;   // Σx
};
static_assert(sizeof(Int16Group) <= 4 * QUANTIZED_MATMUL_LIMB_GROUP_WORDS);

// Whether this processor is faster at products of numbers of 16 bits when floats are added beside them instead of
// integers: AMD's add floats in units of their own, but integers in any, where they keep products waiting. Zen 3's share
// a unit with the products, which wait for floats longer. Asked when the library is loaded; tests ask for either by
// MLXTS_FLOAT_SUMS.
inline const bool kAddsFloats = asked_or("MLXTS_FLOAT_SUMS", made_by_amd() && !is_zen3());

// Whether sums of groups are added as floats in this thread: not where those below 2^-126 are taken for 0.
inline bool adds_floats(uint32_t groupSize) {
  constexpr uint32_t kTakenForZero = _MM_FLUSH_ZERO_MASK | _MM_DENORMALS_ZERO_MASK;
  return kAddsFloats && groupSize <= kFloatSumColumns && (_mm_getcsr() & kTakenForZero) == 0;
}

// Steps of a word of codes, each of a column and of the one that is four columns on.
constexpr uint32_t kStepsOfWord = 4;

// The unit of a group of n bf16: a power of two, of which the largest is less than 2^14; 0 where a number is not
// finite, or the largest too large or too small for units.
inline ByteUnit int16_unit(const float* x, uint32_t n) {
  const int32_t size = largest_size(x, n);
  if (size == 0) return {1, 1};
  if (!has_unit(size)) return {0, 0};
  const int unit = (size >> 23) - 127 - 13;
  return {std::bit_cast<float>(uint32_t(127 + unit) << 23), std::bit_cast<float>(uint32_t(127 - unit) << 23)};
}

// Row r of m rows of x, panel by panel: of each eight columns the first and the fifth, the second and the sixth, and so
// on. Where sums are added as floats, numbers are from kInt16Zero on, those of a group −x where those of x add up to
// more than 0. Bytes, where such are wanted. False where numbers do not allow it.
inline bool order_int16(const Types& t, const uint8_t* x, uint32_t cols, uint32_t groupSize, uint32_t m, uint32_t r,
                        bool bytes, bool floats, int16_t* to, Int16Group* groups) {
  alignas(64) float group[128];
  const int32_t zero = floats ? kInt16Zero : 0;
  for (uint32_t k = 0, g = 0; k < cols; k += groupSize, ++g) {
    t.x(x + k * t.xBytes, group, groupSize);
    const ByteUnit of = bytes ? byte_unit(group, groupSize) : int16_unit(group, groupSize);
    if (of.unit == 0) return false;
    vi32 numbers[128 / kLanes], sums = {};
    for (uint32_t i = 0; i < groupSize; i += kLanes)
      sums += numbers[i / kLanes] = whole_numbers(load(group + i) * splat(of.inverse));
    int32_t sum = 0;
    for (int l = 0; l < kLanes; ++l) sum += sums[l];
    const int32_t sign = floats && sum > 0 ? -1 : 1;
    const uint32_t k0 = k / kCodeDepth * kCodeDepth;
    int16_t* row = to + panel_row(m, k0, panel_columns(cols, k0), r) + k - k0;
    for (uint32_t i = 0; i < groupSize; i += kLanes) {
      // The lanes 0 … 3 become lower halves and 4 … 7 upper ones.
      const __m256i eight = reinterpret_cast<__m256i>(numbers[i / kLanes] * splat_i32(sign) + splat_i32(zero));
      const __m128i low = _mm256_castsi256_si128(eight), high = _mm256_extracti128_si256(eight, 1);
      _mm_storeu_si128(reinterpret_cast<__m128i*>(row + i), _mm_blend_epi16(low, _mm_slli_epi32(high, 16), 0xaa));
    }
    groups[size_t(g) * m + r] = {float(sign) * of.unit, float(sum) * of.unit};
  }
  return true;
}

// Columns k0 … k0 + n − 1 of the codes: panels [n / 2][kPanelColumns], two numbers each, columns in the order of
// order_int16, one panel after the other. AddFloats: zeros[groups][kBlock] are what sums of products lack, as numbers are
// from kInt16Zero on: −kInt16Zero · Σ codes.
template <bool AddFloats>
void decode_int16_panels(const Block& w, uint32_t k0, uint32_t n, uint32_t* panels, int32_t* zeros) {
  for (uint32_t v = 0; v * kLanes < round_up(w.count, kPanelColumns); ++v) {
    uint32_t* to = panels + v / kTileVectors * (n / 2) * kPanelColumns + v % kTileVectors * kLanes;
    vu32 sums = {};  // of the codes of a group, in halves
    for (uint32_t k = 0; k < n; k += kChunk<4>) {
      const uint32_t count = (n - k < uint32_t(kChunk<4>) ? n - k : kChunk<4>) / kPerWord<4>;
      vu32 words[kLanes];
      w.load_transposed(v, (k0 + k) / kPerWord<4>, count, words);
      for (uint32_t i = 0; i < count; ++i) {
        MLXTS_UNROLL
        for (uint32_t step = 0; step < kStepsOfWord; ++step, to += kPanelColumns) {
          const vu32 codes = words[i] >> (4 * step) & 0x000f000fu;
          memcpy(to, &codes, sizeof codes);
          if constexpr (AddFloats) sums += codes;
        }
        const uint32_t end = k + (i + 1) * kPerWord<4>;
        if (!AddFloats || end % w.groupSize != 0) continue;
        const vu32 zero = ((sums & 0xffffu) + (sums >> 16)) * uint32_t(-kInt16Zero);
        memcpy(zeros + (end / w.groupSize - 1) * kBlock + v * kLanes, &zero, sizeof zero);
        sums = vu32{};
      }
    }
  }
}

// c[R, columns] += Σ scale·(codes·x) + bias·Σx over `groups` groups of `steps` two columns of W each, panel by panel. x
// and its groups are those of the first row; the rows are xStride numbers apart, groups of one row m. AddFloats: sums
// are added as the floats that have their bits, whole numbers of 2^-149, and are exact below 2^24.
template <int R, bool AddFloats>
void multiply_int16_panels(const int16_t* x, size_t xStride, const uint32_t* panel, uint32_t columns, uint32_t groups,
                           uint32_t steps, const int32_t* zeros, const float* scales, const float* biases,
                           const Int16Group* xGroups, size_t m, float* c) {
  using Sum = std::conditional_t<AddFloats, vf32, vi32>;
  for (uint32_t column = 0; column < columns; column += kPanelColumns, c += kPanelColumns) {
    const int16_t* numbersAt = x;
    for (uint32_t g = 0; g < groups; ++g) {
      Sum sums[R][kTileVectors] = {};
      // Two steps at a time take 4 % less time.
#pragma GCC unroll 2
      for (uint32_t i = 0; i < steps; ++i, panel += kPanelColumns, numbersAt += 2) {
        __m256i codes[kTileVectors];
        MLXTS_UNROLL
        for (int v = 0; v < kTileVectors; ++v) memcpy(&codes[v], panel + v * kLanes, sizeof codes[v]);
        MLXTS_UNROLL
        for (int r = 0; r < R; ++r) {
          const auto* two = reinterpret_cast<const bf16*>(numbersAt + r * xStride);
          const auto numbers = reinterpret_cast<__m256i>(splat_bf16x2(two));
          MLXTS_UNROLL
          for (int v = 0; v < kTileVectors; ++v)
            sums[r][v] += reinterpret_cast<Sum>(_mm256_madd_epi16(codes[v], numbers));
        }
      }
      float* to = anew(c);
      const size_t at = g * kBlock + column;
      const Int16Group* group = xGroups + g * m;
      vf32 scale[kTileVectors], bias[kTileVectors];
      MLXTS_UNROLL
      for (int r = 0; r < R; ++r, to += kBlock) {
        const vf32 sum = splat(group[r].sum), unit = splat(group[r].unit);
        MLXTS_UNROLL
        for (int v = 0; v < kTileVectors; ++v) {
          // The first rows leave registers for these, one after the other, once they are stored.
          if (r < 2) scale[v] = load(scales + at + v * kLanes);
          if (r == 1) scale[v] = in_register(scale[v]);
          if (r < 3) bias[v] = load(biases + at + v * kLanes);
          if (r == 2) bias[v] = in_register(bias[v]);
          vi32 whole = reinterpret_cast<vi32>(sums[r][v]);
          if constexpr (AddFloats) {
            vi32 zero;
            memcpy(&zero, zeros + at + v * kLanes, sizeof zero);
            whole += zero;
          }
          const vf32 dot = __builtin_convertvector(whole, vf32) * unit;
          store(to + v * kLanes, fma(sum, bias[v], fma(dot, scale[v], load(to + v * kLanes))));
        }
      }
    }
  }
}

// c[m, kBlock] += x · Wᵀ, finish as in `multiply`; the biases of W are not centered.
template <bool AddFloats, typename Scratch, typename Finish>
void multiply_int16(const int16_t* x, uint32_t m, uint32_t cols, const Block& w, Ahead& ahead, const Scratch& s,
                    Finish finish) {
  uint32_t* panels = reinterpret_cast<uint32_t*>(s.panel);
  const auto* groups = reinterpret_cast<const Int16Group*>(s.sums);
  alignas(64) int32_t zeros[kCodeDepth / 32 * kBlock];
  for (uint32_t k0 = 0; k0 < cols; k0 += kCodeDepth) {
    const uint32_t n = panel_columns(cols, k0), g0 = k0 / w.groupSize;
    decode_int16_panels<AddFloats>(w, k0, n, panels, zeros);
    // All panels stay in the first cache, as a tile of x does meanwhile.
    for_row_tiles<kPanelRows>(m, [&](uint32_t r, auto R) {
      ahead.step();
      multiply_int16_panels<R, AddFloats>(x + panel_row(m, k0, n, r), n, panels, w.count, n / w.groupSize,
                                          w.groupSize / 2, zeros, w.scales + g0 * kBlock, w.biases + g0 * kBlock,
                                          groups + size_t(g0) * m + r, m, s.products + r * kBlock);
      if (k0 + n == cols) finish(r, R);
    });
  }
}
#endif

}  // namespace mlxts
