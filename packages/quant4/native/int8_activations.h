// x as whole numbers of a signed byte, where callers of products ask for it: each group of a row has one unit, its
// largest number / 127. Groups that are not finite, or too large or too small for a unit, stay as they are.
#pragma once
#include "limbs.h"
#include "product.h"
#include "quantized_matvec.params.h"

namespace mlxts {

constexpr float kByteUnits = QUANTIZED_MATVEC_BYTE_UNITS;  // of the largest number of a group

// What numbers of a group are multiplied with to become whole numbers, and to become numbers again.
struct ByteUnit {
  float unit;  // 0: they stay as they are
  float inverse;
};

// Of n numbers, which are whole vectors.
MLXTS_INLINE ByteUnit byte_unit(const float* x, uint32_t n) {
  const int32_t most = largest_size(x, n);
  if (most == 0) return {1, 1};
  if (most < (127 - 100) << 23 || most >= (127 + 118) << 23) return {0, 0};
  float largest;
  memcpy(&largest, &most, 4);
  return {largest / kByteUnits, kByteUnits / largest};
}

// v in units, ties to even.
MLXTS_INLINE vf32 whole_units(vf32 v, ByteUnit of) {
  const vf32 shift = splat(0x1.8p23f);
  return in_register(in_register(v * splat(of.inverse)) + shift) - shift;
}

// The groups of n numbers as the numbers that are multiplied instead.
inline void round_to_bytes(float* x, uint32_t n, uint32_t groupSize) {
  for (uint32_t g = 0; g < n; g += groupSize) {
    const ByteUnit of = byte_unit(x + g, groupSize);
    if (of.unit == 0) continue;
    for (uint32_t i = g; i < g + groupSize; i += kLanes) store(x + i, whole_units(load(x + i), of) * splat(of.unit));
  }
}

#if MLXTS_LIMBS
// Whether all groups of a row of n columns become bytes.
inline bool fits_bytes(const Types& t, const uint8_t* x, size_t n, uint32_t groupSize) {
  alignas(64) float group[128];
  for (size_t i = 0; i < n; i += groupSize) {
    t.x(x + i * t.xBytes, group, groupSize);
    if (byte_unit(group, groupSize).unit == 0) return false;
  }
  return true;
}

// The code bytes of words that meet step `step` of their columns: of 4 bits the even codes, then the odd ones.
template <int Bits>
MLXTS_INLINE vu32 code_bytes(vu32 words, int step) {
  if constexpr (Bits == 8) return words;
  return (step == 0 ? words : words >> 4) & 0x0f0f0f0fu;
}
#endif

#if defined(__AVX512VNNI__)
// kLanes numbers as bytes; whole numbers of them.
MLXTS_INLINE vf32 store_bytes(vf32 v, ByteUnit of, int8_t* to) {
  const vf32 whole = whole_units(v, of);
  const __m512i numbers = reinterpret_cast<__m512i>(whole_numbers(whole));
  _mm_storeu_si128(reinterpret_cast<__m128i*>(to), _mm512_maskz_cvtepi32_epi8(0xffff, numbers));
  return whole;
}

// Bytes of two vectors that follow each other: those of even places, and those of odd ones.
MLXTS_INLINE void split_bytes(const int8_t* bytes, vi32& even, vi32& odd) {
  alignas(64) uint8_t order[64];
  for (int i = 0; i < 64; ++i) order[i] = uint8_t(2 * i);
  const __m512i evens = _mm512_load_si512(order), odds = _mm512_or_si512(evens, _mm512_set1_epi8(1));
  const __m512i first = _mm512_load_si512(bytes), second = _mm512_load_si512(bytes + 64);
  even = reinterpret_cast<vi32>(_mm512_permutex2var_epi8(first, evens, second));
  odd = reinterpret_cast<vi32>(_mm512_permutex2var_epi8(first, odds, second));
}

// 128 columns of x in bytes, as the codes of words meet them; sums[g] becomes Σ of group g as it is multiplied.
template <int Bits>
void order_bytes(const float* x, uint32_t groupSize, LimbChunk<Bits, 1>* to, float* sums) {
  alignas(64) int8_t bytes[128];
  vf32 units = {};
  for (uint32_t g = 0; g < 128; g += groupSize) {
    const ByteUnit of = byte_unit(x + g, groupSize);
    units[g / groupSize] = of.unit;
    vf32 whole = {};
    for (uint32_t k = g; k < g + groupSize; k += kLanes) whole += store_bytes(load(x + k), of, bytes + k);
    sums[g / groupSize] = reduce_add(whole) * of.unit;
  }
  ChunkScales<Bits> lanes(uint32_t(__builtin_ctz(groupSize)));
  for (int c = 0; c < 128; c += kChunk<Bits>, ++to, lanes.next()) {
    if constexpr (Bits == 4)
      split_bytes(bytes + c, to->limbs[0][0], to->limbs[0][1]);
    else
      memcpy(&to->limbs[0][0], bytes + c, sizeof(vi32));
    to->unit = lanes.of(units);
  }
}
#endif

}  // namespace mlxts
