// Products of 16 rows of W with few rows of x in tiles: the codes of a step of 64 columns are a tile of signed bytes,
// and the limbs of x (limbs.h) are the columns of others, so that one instruction multiplies them all. Limbs are of the
// largest of 256 columns of a row of x; the sums of a step leave the tiles to be scaled. Storing a tile takes as long
// as multiplying one, and vectors stand still meanwhile: two steps share a tile of sums where their limbs fit into one.
#pragma once
#include "amx_tiles.h"
#include "limbs.h"
#include "matrix_reduce.h"
#include "matvec_dot.h"

namespace mlxts {

constexpr uint32_t kTileParts = 8;  // rows of W are taken from so many places

#if defined(__AMX_INT8__)
constexpr uint32_t kStepColumns = AmxTiles::kRowBytes;        // of W in a tile
constexpr uint32_t kTileEach = AmxTiles::kRows / kTileParts;  // neighbors
constexpr uint32_t kTileBytes = AmxTiles::kRows * AmxTiles::kRowBytes;
// Whose limbs of a row of x have one unit; their codes are unpacked before any are multiplied.
constexpr uint32_t kUnitSteps = 4;

// Rows of x as tiles. For each step, [column / 4][limb of a row][column % 4], in one of three forms:
// up to 8 limbs: one tile, limb l in column 2·l + step % 2, the columns of the other step of a pair being 0;
// up to 16: one tile, limb l in column l;
// up to 24: two tiles, the first 16 limbs as of 16, the others as of 8.
struct TileRowsOfX {
  int8_t* limbs;  // [step][tile]
  float* units;   // [step / kUnitSteps][tile][column]: what sums are multiplied with
  float* sums;    // [m, sumStride]: Σx of each group
  size_t sumStride;
  uint32_t m, limbCount;  // rows, limbs of a number

  uint32_t lanes() const { return m * limbCount <= 8 ? 8 : m * limbCount <= 16 ? 16 : 24; }
  uint32_t tiles() const { return lanes() == 24 ? 2 : 1; }
};

// Whether so many rows of x are sooner multiplied in tiles.
constexpr bool wants_tiles(uint32_t m, uint32_t limbCount, uint32_t groupSize) {
  return m * limbCount > 4 && groupSize >= kStepColumns;
}

// Row i of x: limbs, units, and the sums of groups.
template <int Bits>
void order_tiles(const Types& t, const uint8_t* x, uint32_t cols, uint32_t groupSize, uint32_t i,
                 const TileRowsOfX& to) {
  // Of 16 columns in order, four digits each, the highest last: for each four columns that meet in the tile, their
  // limbs.
  alignas(64) uint8_t order[64] = {};
  for (uint32_t k = 0; k < 4; ++k)
    for (uint32_t limb = 0; limb < to.limbCount; ++limb)
      for (uint32_t b = 0; b < 4; ++b) {
        const uint32_t column = Bits == 4 ? k % 2 * 8 + 2 * b + k / 2 : 4 * k + b;
        order[16 * k + 4 * limb + b] = uint8_t(4 * column + to.limbCount - 1 - limb);
      }
  const __m512i index = _mm512_load_si512(order), offset = _mm512_set1_epi32(0x808080);
  const uint32_t lanes = to.lanes(), tiles = to.tiles(), unitColumns = kUnitSteps * kStepColumns;
  alignas(64) float widened[kUnitSteps * kStepColumns];
  for (uint32_t first = 0; first < cols; first += unitColumns) {
    const uint32_t n = cols - first < unitColumns ? cols - first : unitColumns;
    t.x(x + size_t(first) * t.xBytes, widened, n);
    vf32 most = {};
    for (uint32_t c = 0; c < n; c += groupSize) {
      vf32 sum = {};
      for (uint32_t k = c; k < c + groupSize; k += kLanes) {
        const vf32 v = load(widened + k);
        most = max(most, max(v, -v));
        sum += v;
      }
      to.sums[i * to.sumStride + (first + c) / groupSize] = reduce_add(sum);
    }
    // Numbers lie below 2^(e + 1) / 1.004, so that every limb of the largest fits a signed byte. Far smaller ones than
    // a row's largest are nothing beside it.
    const vf32 largest = splat(reduce_max(most) * 1.004f);
    const int bits = (as_i32(largest)[0] >> 23) - 127, e = bits > -100 ? bits : -100;
    const int unit = e + 2 - 8 * int(to.limbCount);
    const vf32 inverse = power_of_two(splat_i32(-unit));
    for (uint32_t limb = 0; limb < to.limbCount; ++limb) {
      const uint32_t lane = i * to.limbCount + limb;
      const bool paired = lanes == 8 || lane >= 16;
      float* units =
          to.units + size_t(first / unitColumns) * tiles * 16 + (paired ? lanes == 8 ? 2 * lane : 2 * lane - 16 : lane);
      units[0] = power_of_two(splat_i32(unit + 8 * int(to.limbCount - 1 - limb) - (Bits == 4 ? 4 : 0)))[0];
      if (paired) units[1] = units[0];
    }
    for (uint32_t c = 0; c < n; c += kLanes) {
      const __m512i q = _mm512_maskz_cvtps_epi32(0xffff, reinterpret_cast<__m512>(load(widened + c) * inverse));
      const __m512i digits = _mm512_xor_si512(_mm512_add_epi32(q, offset), offset);
      alignas(64) uint8_t bytes[64];
      _mm512_store_si512(bytes, _mm512_maskz_permutexvar_epi8(~__mmask64(0), index, digits));
      const uint32_t step = (first + c) / kStepColumns, part = c % kStepColumns / kLanes;
      for (uint32_t k = 0; k < 4; ++k) {
        const uint32_t row = Bits == 4 ? 2 * part + k % 2 + k / 2 * 8 : 4 * part + k;
        for (uint32_t limb = 0; limb < to.limbCount; ++limb) {
          const uint32_t lane = i * to.limbCount + limb, l = lane % 16;
          int8_t* at = to.limbs + (size_t(step) * tiles + lane / 16) * kTileBytes + row * AmxTiles::kRowBytes;
          uint32_t four;
          memcpy(&four, bytes + 16 * k + 4 * limb, 4);
          if (lanes == 8 || lane >= 16) {
            const uint64_t two = uint64_t(four) << (step % 2 * 32);
            memcpy(at + 8 * l, &two, 8);
          } else {
            memcpy(at + 4 * l, &four, 4);
          }
        }
      }
    }
  }
}

// The codes of 64 columns of a row of W, centered: of 4 bits 16 times their number, and even columns before odd ones.
template <int Bits>
struct TileCodes {
  // Even columns move to the upper half of their bytes, where odd ones are.
  const __m512i shift = _mm512_maskz_inserti64x4(0xff, _mm512_set1_epi16(4), _mm256_setzero_si256(), 1);
  const __m512i mask = _mm512_set1_epi8(char(0xf0)), center = _mm512_set1_epi8(char(0x80));
  MLXTS_INLINE void unpack(const uint8_t* words, int8_t* to) const {
    if constexpr (Bits == 8) {
      _mm512_store_si512(to, _mm512_xor_si512(_mm512_loadu_si512(words), center));
    } else {
      const __m256i half = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(words));
      const __m512i twice = _mm512_sllv_epi16(_mm512_maskz_broadcast_i64x4(0xff, half), shift);
      _mm512_store_si512(to, _mm512_ternarylogic_epi32(twice, mask, center, 0x6a));
    }
  }
};

constexpr uint32_t kTileSpan = 128;  // steps whose scales are widened at once
struct TileScales {
  alignas(64) float of[AmxTiles::kRows][kTileSpan + kLanes];  // [row][step]
};

// Widens the scales of the steps begin … end − 1 of `count` rows of W, and adds what biases give with up to M rows of x
// to y.
template <int Bits, int M>
void begin_span(const WeightRows& w, bool far, const TileRowsOfX& x, uint32_t begin, uint32_t end, uint32_t count,
                TileScales& scales, float* y) {
  const bool twice = w.shift == 7;
  const uint32_t group = begin >> twice, groups = (end - begin) >> twice;
  const ScaleType type = w.scaleType;
  const size_t size = bytes_of<AnyScale>(type), next = w.nextScaleBytes;
  const size_t part = far ? w.scaleRowBytes : kTileEach * next;
  const ptrdiff_t biases = distance(w.scales, w.biases);
  const float* sums[M];
  for (uint32_t i = 0; i < M; ++i) sums[i] = x.sums + (i < x.m ? i : 0) * x.sumStride + group;
  vi32 pairs;
  for (int l = 0; l < kLanes; ++l) pairs[l] = l / 2;
  const vi32 more = pairs + splat_i32(kLanes / 2);
  const auto lanes = [](vf32 v, vi32 from) {
    return reinterpret_cast<vf32>(_mm512_permutexvar_ps(reinterpret_cast<__m512i>(from), reinterpret_cast<__m512>(v)));
  };
  vf32 of_biases[M][AmxTiles::kRows];
  for (uint32_t r = 0; r < AmxTiles::kRows; ++r) {
    vf32 of_row[M] = {};
    const uint8_t* from = w.scales + r / kTileEach * part + r % kTileEach * next + group * size;
    for (uint32_t g = 0; r < count && g < groups; g += kLanes, from += kLanes * size) {
      const uint8_t* of_bias = reinterpret_cast<const uint8_t*>(uintptr_t(from) + uintptr_t(biases));
      fetch(from, ptrdiff_t(kTileEach * next));
      fetch(of_bias, ptrdiff_t(kTileEach * next));
      const vf32 scale = load_scales<AnyScale>(type, from, groups - g);
      const vf32 bias = fma(splat(kCenter<Bits>), scale, load_scales<AnyScale>(type, of_bias, groups - g));
      if (twice) {
        store(scales.of[r] + 2 * g, lanes(scale, pairs));
        store(scales.of[r] + 2 * g + kLanes, lanes(scale, more));
      } else {
        store(scales.of[r] + g, scale);
      }
      MLXTS_UNROLL
      for (int i = 0; i < M; ++i) of_row[i] = fma(bias, load(sums[i] + g), of_row[i]);
    }
    MLXTS_UNROLL
    for (int i = 0; i < M; ++i) of_biases[i][r] = of_row[i];
  }
  for (uint32_t i = 0; i < M && i < x.m; ++i) {
    float* to = y + i * AmxTiles::kRows;
    store(to, load(to) + reduce_add_all(of_biases[i]));
  }
}

// Steps [begin, end) of `count` rows of W, at most kTileSpan: y[i·16 + r] += the product of row r and row i of x.
template <int Bits, int Lanes>
void dot_tiles(const WeightRows& w, const TileRowsOfX& x, uint32_t begin, uint32_t end, uint32_t count, bool far,
               float* y) {
  constexpr bool kSingle = Lanes >= 16, kPaired = Lanes != 16;
  constexpr int kSums = Lanes / 8, kTiles = Lanes == 24 ? 2 : 1;  // tiles of sums of two steps, of limbs of one
  constexpr uint32_t kPairs = kUnitSteps / 2, kStepBytes = kStepColumns * Bits / 8;
  alignas(64) int8_t codes[kUnitSteps][kTileBytes];
  alignas(64) int32_t products[kPairs][kSums][kTileBytes / 4];
  vf32 single[AmxTiles::kRows], paired[AmxTiles::kRows];
  for (int r = 0; r < AmxTiles::kRows; ++r) single[r] = paired[r] = vf32{};
  TileScales scales;
  const bool oneGroup = w.shift == 7;  // a group has two steps, whose sums are the first one's
  // Sums that are not there count as 0.
  if (oneGroup || (end - begin) % kUnitSteps != 0) memset(products, 0, sizeof products);
  if (count < AmxTiles::kRows) {
    memset(codes, 0, sizeof codes);
    memset(&scales, 0, sizeof scales);
  }
  if (x.m <= 4)
    begin_span<Bits, 4>(w, far, x, begin, end, count, scales, y);
  else
    begin_span<Bits, 8>(w, far, x, begin, end, count, scales, y);

  const TileCodes<Bits> tile;
  const size_t next = w.nextBytes, part = far ? w.rowBytes : kTileEach * next;
  for (uint32_t first = begin; first < end; first += kUnitSteps) {
    const uint32_t left = end - first < kUnitSteps ? end - first : kUnitSteps;
    for (uint32_t i = 0; i < left; i += 2) {
      const uint8_t* words = w.words + (first + i) * kStepBytes;
      int8_t* to = codes[i];
      if (i + 1 < left && count == AmxTiles::kRows) {
        MLXTS_UNROLL
        for (uint32_t r = 0; r < AmxTiles::kRows;
             r += kTileEach, words += part, to += kTileEach * AmxTiles::kRowBytes) {
          // The next rows of this part, in the order of memory, into the second cache: the first one has no place for
          // them.
          const uintptr_t ahead = uintptr_t(words) + kTileEach * next + (kTileEach - 1) * (first + i) * kStepBytes;
          MLXTS_UNROLL
          for (uint32_t k = 0; k < 2 * kTileEach * kStepBytes; k += 64)
            __builtin_prefetch(reinterpret_cast<const void*>(ahead + k), 0, 2);
          MLXTS_UNROLL
          for (uint32_t k = 0; k < kTileEach; ++k) {
            tile.unpack(words + k * next, to + k * AmxTiles::kRowBytes);
            tile.unpack(words + k * next + kStepBytes, to + k * AmxTiles::kRowBytes + kTileBytes);
          }
        }
      } else {
        for (uint32_t r = 0; r < count; ++r)
          for (uint32_t k = 0; k < 2 && i + k < left; ++k)
            tile.unpack(words + r / kTileEach * part + r % kTileEach * next + k * kStepBytes,
                        to + r * AmxTiles::kRowBytes + k * kTileBytes);
      }
    }
    AmxTiles::written();
    for (uint32_t i = 0; i < left; i += 2) {
      const int8_t *limbs = x.limbs + size_t(first + i) * kTiles * kTileBytes, *next = limbs + kTiles * kTileBytes;
      int32_t(*to)[kTileBytes / 4] = products[i / 2];
      _tile_zero(0);
      _tile_loadd(4, codes[i], AmxTiles::kRowBytes);
      _tile_loadd(6, limbs, AmxTiles::kRowBytes);
      _tile_dpbssd(0, 4, 6);
      _tile_loadd(5, codes[i + 1], AmxTiles::kRowBytes);
      _tile_loadd(7, next, AmxTiles::kRowBytes);
      if constexpr (kSingle) {
        if (oneGroup) {
          _tile_dpbssd(0, 5, 7);
        } else {
          _tile_zero(1);
          _tile_dpbssd(1, 5, 7);
        }
        if constexpr (kPaired) {
          _tile_zero(2);
          _tile_loadd(6, limbs + kTileBytes, AmxTiles::kRowBytes);
          _tile_dpbssd(2, 4, 6);
          _tile_loadd(7, next + kTileBytes, AmxTiles::kRowBytes);
          _tile_dpbssd(2, 5, 7);
        }
        _tile_stored(0, to[0], AmxTiles::kRowBytes);
        if (!oneGroup) _tile_stored(1, to[1 % kSums], AmxTiles::kRowBytes);
        if constexpr (kPaired) _tile_stored(2, to[kSums - 1], AmxTiles::kRowBytes);
      } else {
        _tile_dpbssd(0, 5, 7);
        _tile_stored(0, to[0], AmxTiles::kRowBytes);
      }
    }
    AmxTiles::written();
    const auto sum = [&](uint32_t pair, int tile, int r) __attribute__((always_inline)) {
      vi32 v;
      memcpy(&v, products[pair][tile] + r * kLanes, sizeof v);
      return __builtin_convertvector(v, vf32);
    };
    const float* units = x.units + size_t(first / kUnitSteps) * kTiles * 16;
    MLXTS_UNROLL
    for (int r = 0; r < AmxTiles::kRows; ++r) {
      const float* of_row = scales.of[r] + (first - begin);
      if constexpr (kSingle) {
        vf32 v = sum(0, 0, r) * splat(of_row[0]);
        MLXTS_UNROLL
        for (uint32_t i = 1; i < kUnitSteps; ++i) v = fma(sum(i / 2, i % 2 % kSums, r), splat(of_row[i]), v);
        single[r] = fma(v, load(units), single[r]);
      }
      if constexpr (kPaired) {
        vf32 v = {};
        MLXTS_UNROLL
        for (uint32_t i = 0; i < kPairs; ++i) {
          double two;
          memcpy(&two, of_row + 2 * i, sizeof two);
          v = fma(sum(i, kSums - 1, r), reinterpret_cast<vf32>(_mm512_set1_pd(two)), v);
        }
        paired[r] = fma(v, load(units + (kTiles - 1) * 16), paired[r]);
      }
    }
  }
  if constexpr (kSingle) transpose(single);
  if constexpr (kPaired) transpose(paired);
  const auto lane = [&](uint32_t i) {
    if (kSingle && i < 16) return single[i];
    return paired[2 * i % 32] + paired[(2 * i + 1) % 32];
  };
  for (uint32_t i = 0; i < x.m; ++i) {
    float* to = y + i * AmxTiles::kRows;
    vf32 all = load(to);
    for (uint32_t limb = x.limbCount; limb-- > 0;) all = lane(i * x.limbCount + limb) + all;
    store(to, all);
  }
}

// The products of `count` rows of W and of all rows of x, biases of groups included: y[i·16 + r]. Each span of steps is
// summed by itself, so that very long rows lose nothing.
template <int Bits>
void multiply_tiles(const WeightRows& w, const TileRowsOfX& x, uint32_t count, bool far, float* y) {
  memset(y, 0, x.m * AmxTiles::kRows * sizeof(float));
  const uint32_t steps = w.groups << (w.shift == 7);
  for (uint32_t begin = 0; begin < steps; begin += kTileSpan) {
    const uint32_t end = steps - begin < kTileSpan ? steps : begin + kTileSpan;
    if (x.lanes() == 8)
      dot_tiles<Bits, 8>(w, x, begin, end, count, far, y);
    else if (x.lanes() == 16)
      dot_tiles<Bits, 16>(w, x, begin, end, count, far, y);
    else
      dot_tiles<Bits, 24>(w, x, begin, end, count, far, y);
  }
}
extern template void multiply_tiles<4>(const WeightRows&, const TileRowsOfX&, uint32_t, bool, float*);
extern template void multiply_tiles<8>(const WeightRows&, const TileRowsOfX&, uint32_t, bool, float*);
#endif

}  // namespace mlxts
