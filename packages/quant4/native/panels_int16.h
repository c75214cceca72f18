// Panels of codes of 4 bits as numbers of 16 bits, for rows of x in whole numbers of 16 bits: for processors with AVX2
// alone, whose products of such numbers, summed in 32 bits, take half the time of those of f32. The numbers are those
// of two limbs, or of one (limb_rows.h).
#pragma once
#include <bit>

#include "int8_activations.h"
#include "panel_block.h"

namespace mlxts {

#if defined(__AVX2__) && !defined(__AVX512VNNI__)
// A group of a row of x: numbers in units. Sums count up from `start`, −center·Σ of the numbers.
struct Int16Group {
  int32_t start;
  float unit;
  float sum;  // Σx
};
static_assert(sizeof(Int16Group) <= 4 * QUANTIZED_MATMUL_LIMB_GROUP_WORDS);

// Steps of a word of codes, each of a column and of the one that is four columns on.
constexpr uint32_t kStepsOfWord = 4;

// The unit of a group of n numbers: a power of two, of which the largest is less than 2^15; 0 where a number is not
// finite, or the largest too large or too small for units.
inline ByteUnit int16_unit(const float* x, uint32_t n) {
  const int32_t size = largest_size(x, n);
  if (size == 0) return {1, 1};
  if (!has_unit(size)) return {0, 0};
  // Numbers lie below 2^(e + 1) / 1.004, as two limbs want it.
  const float most = std::bit_cast<float>(size) * 1.004f;
  const int unit = int(std::bit_cast<uint32_t>(most) >> 23) - 127 - 14;
  return {std::bit_cast<float>(uint32_t(127 + unit) << 23), std::bit_cast<float>(uint32_t(127 - unit) << 23)};
}

// Row r of m rows of x, panel by panel: of each eight columns the first and the fifth, the second and the sixth, and so
// on. Bytes, where such are wanted. False where numbers do not allow it.
inline bool order_int16(const Types& t, const uint8_t* x, uint32_t cols, uint32_t groupSize, uint32_t m, uint32_t r,
                        bool bytes, int16_t* to, Int16Group* groups) {
  alignas(64) float group[128];
  for (uint32_t k = 0, g = 0; k < cols; k += groupSize, ++g) {
    t.x(x + k * t.xBytes, group, groupSize);
    const ByteUnit of = bytes ? byte_unit(group, groupSize) : int16_unit(group, groupSize);
    if (of.unit == 0) return false;
    const uint32_t k0 = k / kCodeDepth * kCodeDepth;
    int16_t* row = to + panel_row(m, k0, panel_columns(cols, k0), r) + k - k0;
    vf32 sum = {};
    vi32 whole = {};
    for (uint32_t i = 0; i < groupSize; i += kLanes) {
      const vf32 v = load(group + i);
      const vi32 numbers = whole_numbers(v * splat(of.inverse));
      whole += numbers;
      sum += bytes ? __builtin_convertvector(numbers, vf32) : v;
      // The lanes 0 … 3 become lower halves and 4 … 7 upper ones.
      const __m256i eight = reinterpret_cast<__m256i>(numbers);
      const __m128i low = _mm256_castsi256_si128(eight), high = _mm256_extracti128_si256(eight, 1);
      _mm_storeu_si128(reinterpret_cast<__m128i*>(row + i), _mm_blend_epi16(low, _mm_slli_epi32(high, 16), 0xaa));
    }
    int32_t total = 0;
    for (int l = 0; l < kLanes; ++l) total += whole[l];
    const float all = reduce_add(sum);
    groups[size_t(g) * m + r] = {-int32_t(kCenter<4>) * total, of.unit, bytes ? all * of.unit : all};
  }
  return true;
}

// Columns k0 … k0 + n − 1 of the codes: panels [n / 2][kPanelColumns], two numbers each, columns in the order of
// order_int16, one panel after the other.
inline void decode_int16_panels(const Block& w, uint32_t k0, uint32_t n, uint32_t* panels) {
  for (uint32_t v = 0; v * kLanes < round_up(w.count, kPanelColumns); ++v) {
    uint32_t* to = panels + v / kTileVectors * (n / 2) * kPanelColumns + v % kTileVectors * kLanes;
    for (uint32_t k = 0; k < n; k += kChunk<4>) {
      const uint32_t count = (n - k < uint32_t(kChunk<4>) ? n - k : kChunk<4>) / kPerWord<4>;
      vu32 words[kLanes];
      w.load_transposed(v, (k0 + k) / kPerWord<4>, count, words);
      for (uint32_t i = 0; i < count; ++i) {
        MLXTS_UNROLL
        for (uint32_t step = 0; step < kStepsOfWord; ++step, to += kPanelColumns) {
          const vu32 codes = words[i] >> (4 * step) & 0x000f000fu;
          memcpy(to, &codes, sizeof codes);
        }
      }
    }
  }
}

// c[R, kPanelColumns] += Σ scale·(codes·x) + bias·Σx over `groups` groups of `steps` two columns each. x and its groups
// are those of the first row; the rows are xStride numbers apart, groups of one row m.
template <int R>
void multiply_int16_panel(const int16_t* x, size_t xStride, const uint32_t* panel, uint32_t groups, uint32_t steps,
                          const float* scales, const float* biases, const Int16Group* xGroups, size_t m, float* c) {
  for (uint32_t g = 0; g < groups; ++g, xGroups += m, scales += kBlock, biases += kBlock) {
    vi32 sums[R][kTileVectors];
    MLXTS_UNROLL
    for (int r = 0; r < R; ++r) {
      MLXTS_UNROLL
      for (int v = 0; v < kTileVectors; ++v) sums[r][v] = splat_i32(xGroups[r].start);
    }
    for (uint32_t i = 0; i < steps; ++i, panel += kPanelColumns, x += 2) {
      __m256i codes[kTileVectors];
      MLXTS_UNROLL
      for (int v = 0; v < kTileVectors; ++v) memcpy(&codes[v], panel + v * kLanes, sizeof codes[v]);
      MLXTS_UNROLL
      for (int r = 0; r < R; ++r) {
        const auto numbers = reinterpret_cast<__m256i>(splat_bf16x2(reinterpret_cast<const bf16*>(x + r * xStride)));
        MLXTS_UNROLL
        for (int v = 0; v < kTileVectors; ++v)
          sums[r][v] += reinterpret_cast<vi32>(_mm256_madd_epi16(codes[v], numbers));
      }
    }
    MLXTS_UNROLL
    for (int r = 0; r < R; ++r) {
      const vf32 sum = splat(xGroups[r].sum), unit = splat(xGroups[r].unit);
      MLXTS_UNROLL
      for (int v = 0; v < kTileVectors; ++v) {
        float* to = c + r * kBlock + v * kLanes;
        const vf32 dot = __builtin_convertvector(sums[r][v], vf32) * unit;
        store(to, fma(sum, load(biases + v * kLanes), fma(dot, load(scales + v * kLanes), load(to))));
      }
    }
  }
}

// c[m, kBlock] += x · Wᵀ
template <typename Scratch>
void multiply_int16(const int16_t* x, uint32_t m, uint32_t cols, const Block& w, Ahead& ahead, const Scratch& s) {
  uint32_t* panels = reinterpret_cast<uint32_t*>(s.panel);
  const auto* groups = reinterpret_cast<const Int16Group*>(s.sums);
  for (uint32_t k0 = 0; k0 < cols; k0 += kCodeDepth) {
    const uint32_t n = panel_columns(cols, k0), g0 = k0 / w.groupSize;
    decode_int16_panels(w, k0, n, panels);
    for (uint32_t column = 0; column < w.count; column += kPanelColumns)
      for_row_tiles<kPanelRows>(m, [&](uint32_t r, auto R) {
        ahead.step();
        multiply_int16_panel<R>(x + panel_row(m, k0, n, r), n, panels + column * (n / 2), n / w.groupSize,
                                w.groupSize / 2, w.scales + g0 * kBlock + column, w.biases + g0 * kBlock + column,
                                groups + size_t(g0) * m + r, m, s.products + r * kBlock + column);
      });
  }
}
#endif

}  // namespace mlxts
