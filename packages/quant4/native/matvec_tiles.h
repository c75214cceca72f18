// Products of 16 rows of W with three to eight rows of x in tiles: the codes of 64 columns are a tile of signed bytes,
// and the limbs of x (limbs.h) are the columns of others, so that one instruction multiplies them all. Limbs are of a
// group's largest x, and a group's sums leave the tiles to be scaled.
#pragma once
#include "amx_tiles.h"
#include "limbs.h"
#include "matrix_transpose.h"
#include "matvec_dot.h"

namespace mlxts {

#if defined(__AMX_INT8__)
constexpr uint32_t kStepColumns = AmxTiles::kRowBytes;  // of W in a tile
constexpr uint32_t kTileBytes = AmxTiles::kRows * AmxTiles::kRowBytes;
constexpr uint32_t kTileRowsOfX = 5;    // whose limbs fill the columns of a tile
constexpr uint32_t kLeastTileRows = 3;  // fewer are sooner done without tiles

// Rows of x as tiles: for each 64 columns of W, a tile for each five rows of x, [column / 4][row of x, limb][column %
// 4]; then what the sums of a group's limbs are multiplied with, [group][tile][row of x, limb].
struct TileRowsOfX {
  const int8_t* limbs;
  const float* units;
  const float* sums;  // [m, sumStride]: Σx of each group
  size_t sumStride;
  uint32_t m;
};

constexpr uint32_t tiles_of(uint32_t m) { return m > kTileRowsOfX ? 2 : 1; }
// Whether tiles fit what scratch has for rows of x.
constexpr bool fits_tiles(uint32_t m, uint32_t groupSize) { return m >= kLeastTileRows && groupSize >= kStepColumns; }

// Row i of m rows of x: limbs, units, and the sums of groups.
template <int Bits>
void order_tiles(const Types& t, const uint8_t* x, uint32_t cols, uint32_t groupSize, uint32_t m, uint32_t i,
                 int8_t* to, float* units, float* sums) {
  // Of 16 columns in order, four digits each, the highest last: for each four columns that meet in the tile, their
  // limbs.
  alignas(64) uint8_t order[64] = {};
  for (uint32_t k = 0; k < 4; ++k)
    for (uint32_t limb = 0; limb < 3; ++limb)
      for (uint32_t b = 0; b < 4; ++b) {
        const uint32_t column = Bits == 4 ? k % 2 * 8 + 2 * b + k / 2 : 4 * k + b;
        order[16 * k + 4 * limb + b] = uint8_t(4 * column + 2 - limb);
      }
  const __m512i index = _mm512_load_si512(order), offset = _mm512_set1_epi32(0x808080);
  const uint32_t tiles = tiles_of(m), tile = i / kTileRowsOfX, lane = i % kTileRowsOfX * 3;
  alignas(64) float widened[128];
  for (uint32_t g = 0; g < cols / groupSize; ++g) {
    t.x(x + size_t(g) * groupSize * t.xBytes, widened, groupSize);
    vf32 most = {}, sum = {};
    for (uint32_t c = 0; c < groupSize; c += kLanes) {
      const vf32 v = load(widened + c);
      most = max(most, max(v, -v));
      sum += v;
    }
    sums[g] = reduce_add(sum);
    // Numbers lie below 2^(e + 1) / 1.004, so that every limb of the largest fits a signed byte. Far smaller ones than
    // a row's largest are nothing beside it.
    const vf32 largest = splat(reduce_max(most) * 1.004f);
    const int bits = (as_i32(largest)[0] >> 23) - 127, e = bits > -100 ? bits : -100, unit = e - 22;
    const vf32 inverse = power_of_two(splat_i32(-unit));
    for (uint32_t limb = 0; limb < 3; ++limb)
      units[(size_t(g) * tiles + tile) * 16 + lane + limb] =
          power_of_two(splat_i32(unit + 8 * int(2 - limb) - (Bits == 4 ? 4 : 0)))[0];
    for (uint32_t c = 0; c < groupSize; c += kLanes) {
      const __m512i q = _mm512_maskz_cvtps_epi32(0xffff, reinterpret_cast<__m512>(load(widened + c) * inverse));
      const __m512i digits = _mm512_xor_si512(_mm512_add_epi32(q, offset), offset);
      alignas(64) uint8_t bytes[64];
      _mm512_store_si512(bytes, _mm512_maskz_permutexvar_epi8(~__mmask64(0), index, digits));
      const uint32_t column = g * groupSize + c, part = column % kStepColumns / kLanes;
      int8_t* step = to + (size_t(column / kStepColumns) * tiles + tile) * kTileBytes + lane * 4;
      for (uint32_t k = 0; k < 4; ++k) {
        const uint32_t row = Bits == 4 ? 2 * part + k % 2 + k / 2 * 8 : 4 * part + k;
        memcpy(step + row * AmxTiles::kRowBytes, bytes + 16 * k, 12);
      }
    }
  }
}

// Steps whose words share a line.
template <int Bits>
inline constexpr uint32_t kTogether = 8 / Bits;

// The codes of `tiles` times 64 columns of `count` rows of W, centered: of 4 bits 16 times their number, and even
// columns before odd ones. A row gives all of them before the next one: rows lie powers of two apart, and a cache has
// no place for the lines of 16 such.
template <int Bits>
MLXTS_INLINE void unpack_tiles(const uint8_t* words, size_t rowBytes, uint32_t count, uint32_t tiles, int8_t* to) {
  if constexpr (Bits == 8) {
    for (uint32_t r = 0; r < count; ++r) {
      const vu32 codes = load_words(words + r * rowBytes) ^ 0x80808080u;
      memcpy(to + r * AmxTiles::kRowBytes, &codes, sizeof codes);
    }
  } else {
    // Even columns move to the upper half of their bytes, where odd ones are.
    const __m512i shift = _mm512_maskz_inserti64x4(0xff, _mm512_set1_epi16(4), _mm256_setzero_si256(), 1);
    const __m512i mask = _mm512_set1_epi8(char(0xf0)), center = _mm512_set1_epi8(char(0x80));
    const auto row = [&](uint32_t r) __attribute__((always_inline)) {
      for (uint32_t tile = 0; tile < tiles; ++tile) {
        const uint8_t* from = words + r * rowBytes + tile * 32;
        const __m256i half = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from));
        const __m512i twice = _mm512_sllv_epi16(_mm512_maskz_broadcast_i64x4(0xff, half), shift);
        _mm512_store_si512(to + tile * kTileBytes + r * AmxTiles::kRowBytes,
                           _mm512_ternarylogic_epi32(twice, mask, center, 0x6a));
      }
    };
    if (count == AmxTiles::kRows && tiles == kTogether<4>) {
      MLXTS_UNROLL
      for (uint32_t r = 0; r < AmxTiles::kRows; ++r) row(r);
    } else {
      for (uint32_t r = 0; r < count; ++r) row(r);
    }
  }
}

// Groups [begin, end) of `count` rows of W, begin a multiple of kLanes: y[i·16 + r] += the product of row r and row i
// of x.
template <int Bits, int T>
void dot_tiles(const WeightRows& w, const TileRowsOfX& x, uint32_t begin, uint32_t end, uint32_t count, float* y) {
  constexpr uint32_t kAhead = 2, kSlots = 4;  // steps and groups that are on their way: none waits for a store
  constexpr uint32_t kMost = kTileRowsOfX * T < 8 ? kTileRowsOfX * T : 8;
  alignas(64) int8_t codes[kSlots][kTileBytes];
  alignas(64) int32_t products[kSlots][T][kTileBytes / 4];
  alignas(64) float scales[2][kLanes][16];
  if (count < AmxTiles::kRows) memset(codes, 0, sizeof codes);
  vf32 acc[T][16] = {}, of_biases[kMost] = {};
  const uint32_t stepBytes = kStepColumns * Bits / 8, steps = (1u << w.lanes.shift) / kStepColumns;
  const uint32_t last = end * steps;
  const auto unpack = [&](uint32_t step) __attribute__((always_inline)) {
    if (step >= last || step % kTogether<Bits> != 0) return;
    const uint8_t* words = w.words + size_t(step) * stepBytes;
    // Into the second cache: the first one has no place for them.
    for (uint32_t r = 0; r < count; ++r)
      __builtin_prefetch(reinterpret_cast<const void*>(uintptr_t(words) + r * w.rowBytes + kFetchBytes), 0, 2);
    const uint32_t left = last - step;
    unpack_tiles<Bits>(words, w.rowBytes, count, left < kTogether<Bits> ? left : kTogether<Bits>, codes[step % kSlots]);
  };
  const auto begin_section = [&](uint32_t group) {
    const uint32_t n = end - group;
    const size_t at = size_t(group) * bytes_of(w.scaleType);
    vf32 s[kLanes] = {}, b[kLanes] = {};
    for (uint32_t r = 0; r < count; ++r) {
      const size_t row = r * w.scaleRowBytes + at;
      fetch(w.scales + row, kFarScaleBytes);
      fetch(w.biases + row, kFarScaleBytes);
      s[r] = load_scales(w.scaleType, w.scales + row, n);
      b[r] = fma(splat(kCenter<Bits>), s[r], load_scales(w.scaleType, w.biases + row, n));
    }
    transpose(s);
    transpose(b);
    for (uint32_t g = 0; g < kLanes; ++g) store(scales[group / kLanes % 2][g], s[g]);
    for (uint32_t i = 0; i < x.m; ++i) {
      const float* sums = x.sums + i * x.sumStride + group;
      for (uint32_t g = 0; g < kLanes; ++g) of_biases[i] = fma(b[g], splat(sums[g]), of_biases[i]);
    }
  };
  const auto scale = [&](uint32_t group) __attribute__((always_inline)) {
    const float* of_group = scales[group / kLanes % 2][group % kLanes];
    MLXTS_UNROLL
    for (int tile = 0; tile < T; ++tile) {
      const int32_t* sums = products[group % kSlots][tile];
      const vf32 unit = load(x.units + (size_t(group) * T + tile) * 16);
      MLXTS_UNROLL
      for (int r = 0; r < 16; ++r) {
        vi32 sum;
        memcpy(&sum, sums + 16 * r, sizeof sum);
        acc[tile][r] = fma(__builtin_convertvector(sum, vf32) * unit, splat(of_group[r]), acc[tile][r]);
      }
    }
  };
  for (uint32_t step = begin * steps; step < begin * steps + kAhead; ++step) unpack(step);
  for (uint32_t group = begin, step = begin * steps; group < end; ++group) {
    if (group % kLanes == 0) begin_section(group);
    _tile_zero(0);
    if constexpr (T == 2) _tile_zero(1);
    for (uint32_t i = 0; i < steps; ++i, ++step) {
      unpack(step + kAhead);
      const int8_t* limbs = x.limbs + size_t(step) * T * kTileBytes;
      AmxTiles::written();
      _tile_loadd(4, codes[step % kSlots], AmxTiles::kRowBytes);
      _tile_loadd(6, limbs, AmxTiles::kRowBytes);
      _tile_dpbssd(0, 4, 6);
      if constexpr (T == 2) {
        _tile_loadd(7, limbs + kTileBytes, AmxTiles::kRowBytes);
        _tile_dpbssd(1, 4, 7);
      }
    }
    _tile_stored(0, products[group % kSlots][0], AmxTiles::kRowBytes);
    if constexpr (T == 2) _tile_stored(1, products[group % kSlots][T - 1], AmxTiles::kRowBytes);
    AmxTiles::written();
    if (group >= begin + kAhead) scale(group - kAhead);
  }
  for (uint32_t group = end - begin > kAhead ? end - kAhead : begin; group < end; ++group) scale(group);
  for (uint32_t tile = 0; tile < T; ++tile) {
    transpose(acc[tile]);
    const uint32_t first = tile * kTileRowsOfX;
    for (uint32_t i = 0; i < kTileRowsOfX && first + i < x.m; ++i) {
      const vf32* limbs = acc[tile] + 3 * i;
      float* to = y + (first + i) * 16;
      store(to, load(to) + (limbs[0] + (limbs[1] + (limbs[2] + of_biases[first + i]))));
    }
  }
}

// The products of `count` rows of W and of all rows of x, biases of groups included: y[i·16 + r]. Each span of groups
// is summed by itself, so that very long rows lose nothing.
template <int Bits>
void multiply_tiles(const WeightRows& w, const TileRowsOfX& x, uint32_t count, float* y) {
  constexpr uint32_t kSpan = 128;
  memset(y, 0, x.m * 16 * sizeof(float));
  for (uint32_t begin = 0; begin < w.groups; begin += kSpan) {
    const uint32_t end = w.groups - begin < kSpan ? w.groups : begin + kSpan;
    if (tiles_of(x.m) == 1)
      dot_tiles<Bits, 1>(w, x, begin, end, count, y);
    else
      dot_tiles<Bits, 2>(w, x, begin, end, count, y);
  }
}
extern template void multiply_tiles<4>(const WeightRows&, const TileRowsOfX&, uint32_t, float*);
extern template void multiply_tiles<8>(const WeightRows&, const TileRowsOfX&, uint32_t, float*);
#endif

}  // namespace mlxts
