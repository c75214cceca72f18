// Rows of x in limbs: each group of a row of x has one power of two as its unit and is whole numbers of up to 8·Limbs
// bits in it, in limbs of one signed byte, largest first. Three limbs err by at most 2^-23 of the largest x of the
// group, two by 2^-15: a bf16 of at least 2^-7 of the largest is a whole number then, too. Sums of products within a
// group are exact in 32 bits.
#pragma once
#include <bit>

#include "int8_activations.h"
#include "panel_block.h"

namespace mlxts {

#if defined(__AVX512VNNI__)
// A group of a row of x in limbs. Sums of limb l count up from start[l], the bits of a float (kFloatOfZero, limbs.h)
// less center·Σ limb: of 128 columns they stay below 2^22.
template <int Limbs>
struct LimbGroup {
  int32_t start[Limbs];
  float zero;  // what the floats of all limbs have too much
  float sum;   // Σx

  // Σ (code − center)·x.
  MLXTS_INLINE vf32 dot(const vi32 (&sums)[Limbs]) const {
    vf32 dot = as_f32(sums[0]) - splat(zero);
    MLXTS_UNROLL
    for (int l = 1; l < Limbs; ++l) dot += as_f32(sums[l]);
    return dot;
  }
};

// Of one limb: bytes in units of any size (int8_activations.h).
template <>
struct LimbGroup<1> {
  int32_t start[1];  // the bits of the float 1.5·2^23 less center·Σ of the bytes
  float unit;
  float sum;  // Σx

  MLXTS_INLINE vf32 dot(const vi32 (&sums)[1]) const { return (as_f32(sums[0]) - splat(0x1.8p23f)) * splat(unit); }
};

static_assert(sizeof(LimbGroup<3>) == 4 * QUANTIZED_MATMUL_LIMB_GROUP_WORDS);

// Row r of m rows of x, in limbs as panels of codes meet them: for each four columns, four bytes of each limb. False
// where numbers are not finite, or too large or too small for units.
template <int Bits, int Limbs>
bool order_limbs(const Types& t, const uint8_t* x, uint32_t cols, uint32_t groupSize, uint32_t m, uint32_t r,
                 int8_t* to, LimbGroup<Limbs>* groups) {
  constexpr uint32_t per = kPerWord<Bits>, kOffset = 0x808080u >> (8 * (3 - Limbs));
  constexpr __mmask64 kStored = (__mmask64(1) << (16 * Limbs)) - 1;
  alignas(64) uint8_t order[64] = {};
  for (uint32_t i = 0; i < 16 * Limbs; ++i) {
    const uint32_t step = i / 4 / Limbs, limb = i / 4 % Limbs, parts = per / 4;  // steps of a word
    const uint32_t column = step / parts * per + i % 4 * parts + step % parts;
    order[i] = uint8_t(column * 4 + Limbs - 1 - limb);
  }
  const __m512i index = _mm512_load_si512(order), offset = _mm512_set1_epi32(kOffset);
  const vu32 center = vu32{} + (Bits == 4 ? 0x08080808u : 0x80808080u);
  alignas(64) float widened[128];
  for (uint32_t k = 0, g = 0; k < cols; k += groupSize, ++g) {
    const float* from = reinterpret_cast<const float*>(x) + k;
    if (t.xBytes != 4) {
      t.x(x + k * t.xBytes, widened, groupSize);
      from = widened;
    }
    __m512i sizes = _mm512_setzero_si512();
    vf32 sum = {};
    for (uint32_t i = 0; i < groupSize; i += kLanes) {
      const vf32 v = load(from + i);
      sizes = _mm512_max_epu32(sizes, _mm512_and_si512(reinterpret_cast<__m512i>(v), _mm512_set1_epi32(0x7fffffff)));
      sum += v;
    }
    const uint32_t size = _mm512_reduce_max_epu32(sizes);
    if (!has_unit(int32_t(size))) return false;
    // Numbers lie below 2^(e + 1) / 1.004, so that every limb of the largest fits a signed byte.
    const float most = std::bit_cast<float>(size) * 1.004f;
    const int e = size == 0 ? 0 : int(std::bit_cast<uint32_t>(most) >> 23) - 127, unit = e - (8 * Limbs - 2);
    const __m512 inverse = _mm512_set1_ps(std::bit_cast<float>(uint32_t(127 - unit) << 23));
    const uint32_t k0 = k / kCodeDepth * kCodeDepth;
    int8_t* row = to + Limbs * (panel_row(m, k0, panel_columns(cols, k0), r) + k - k0);
    vi32 dots = {};
    for (uint32_t i = 0; i < groupSize; i += kLanes, row += 16 * Limbs) {
      const __m512i q = _mm512_cvtps_epi32(_mm512_mul_ps(reinterpret_cast<__m512>(load(from + i)), inverse));
      const __m512i digits = _mm512_xor_si512(_mm512_add_epi32(q, offset), offset);
      const __m512i bytes = _mm512_maskz_permutexvar_epi8(kStored, index, digits);
      _mm512_mask_storeu_epi8(row, kStored, bytes);
      dots = dot_int8x4(dots, center, reinterpret_cast<vu32>(bytes));
    }
    LimbGroup<Limbs>& group = groups[size_t(g) * m + r];
    group = {.start = {}, .zero = 0, .sum = reduce_add(sum)};
    for (int l = 0; l < Limbs; ++l) {
      const uint32_t zero = uint32_t(kFloatOfZero) + (uint32_t(unit + 8 * (Limbs - 1 - l)) << 23);
      group.start[l] = int32_t(zero);
      for (int step = 0; step < 4; ++step) group.start[l] -= dots[step * Limbs + l];
      group.zero += std::bit_cast<float>(zero);
    }
  }
  return true;
}

// The columns of a vector of bytes in the order of codes: for each four, those of a byte of each word.
template <int Bits>
MLXTS_INLINE __m512i byte_order() {
  constexpr uint32_t per = kPerWord<Bits>, parts = per / 4;  // steps of a word
  alignas(64) uint8_t order[64];
  for (uint32_t i = 0; i < 64; ++i) order[i] = uint8_t(i / per * per + i % 4 * parts + i % per / 4);
  return _mm512_load_si512(order);
}

// The same of a row whose groups become bytes.
template <int Bits>
void order_byte_row(const Types& t, const uint8_t* x, uint32_t cols, uint32_t groupSize, uint32_t m, uint32_t r,
                    int8_t* to, LimbGroup<1>* groups) {
  const __m512i index = byte_order<Bits>();
  alignas(64) float group[128];
  alignas(64) int8_t bytes[128] = {};
  for (uint32_t k = 0, g = 0; k < cols; k += groupSize, ++g) {
    t.x(x + k * t.xBytes, group, groupSize);
    const ByteUnit of = byte_unit(group, groupSize);
    vf32 whole = {};
    for (uint32_t i = 0; i < groupSize; i += kLanes) whole += store_bytes(load(group + i), of, bytes + i);
    const uint32_t k0 = k / kCodeDepth * kCodeDepth;
    int8_t* row = to + panel_row(m, k0, panel_columns(cols, k0), r) + k - k0;
    vi32 dots = {};
    for (uint32_t i = 0; i < groupSize; i += 64) {
      const __m512i columns = _mm512_permutexvar_epi8(index, _mm512_load_si512(bytes + i));
      _mm512_mask_storeu_epi8(row + i, groupSize - i < 64 ? 0xffffffff : ~__mmask64(0), columns);
      dots = center_dot<Bits>(dots, reinterpret_cast<vu32>(columns));
    }
    int32_t start = kFloatOfZero;
    for (int l = 0; l < kLanes; ++l) start -= dots[l];
    groups[size_t(g) * m + r] = {{start}, of.unit, reduce_add(whole) * of.unit};
  }
}

// `rows` rows of x, of which row_at(i) is the address, in so many limbs; false where x does not allow it.
template <int Bits, typename RowAt>
bool order_rows(const Types& t, uint32_t limbs, uint32_t rows, uint32_t cols, uint32_t groupSize, int8_t* to,
                float* groups, RowAt row_at) {
  bool fits = true;
  if (limbs == 1) {
    for (uint32_t r = 0; fits && r < rows; ++r) fits = fits_bytes(t, row_at(r), cols, groupSize);
    for (uint32_t r = 0; fits && r < rows; ++r)
      order_byte_row<Bits>(t, row_at(r), cols, groupSize, rows, r, to, reinterpret_cast<LimbGroup<1>*>(groups));
    return fits;
  }
  for (uint32_t r = 0; fits && r < rows; ++r)
    fits = limbs == 2 ? order_limbs<Bits, 2>(t, row_at(r), cols, groupSize, rows, r, to,
                                             reinterpret_cast<LimbGroup<2>*>(groups))
                      : order_limbs<Bits, 3>(t, row_at(r), cols, groupSize, rows, r, to,
                                             reinterpret_cast<LimbGroup<3>*>(groups));
  return fits;
}
#endif

}  // namespace mlxts
