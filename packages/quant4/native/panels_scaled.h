// Panels of weights of 4 bits in tiles, each the sum of two bf16 and so within 2^-16 of the weight, for bf16 x and bf16
// results. A pair of left tiles has 32 rows of W, right tiles have 16 rows of x each; sums need no scales any more, and
// go from panel to panel as tiles.
#pragma once
#include "amx_product.h"
#include "panel_block.h"

namespace mlxts {

#if defined(__AMX_BF16__)
// Fewer rows of x do not make up for the second bf16.
constexpr uint32_t kLeastScaledRows = 33;
constexpr uint32_t kPairRows = 2 * kAmxRows;  // of W
constexpr uint32_t kPairsOfBlock = kBlock / kPairRows;
constexpr uint32_t kScaledDepth = kCodeDepth;  // columns of a panel, which are a line of codes of each row
constexpr uint32_t kScaledSteps = kScaledDepth / kTileDepth;  // step j has the columns 4·i + j
static_assert(kScaledDepth == 128);
constexpr size_t kStepSize = 2 * 2 * kTileSize;  // of a panel: [part][tile of the pair]
constexpr size_t kScaledPanelSize = kScaledSteps * kStepSize;
constexpr uint32_t kMostBlocks = QUANTIZED_MATMUL_BLOCKS_AT_ONCE;  // that meet x at once
constexpr size_t kRightSize = kScaledSteps * kTileSize;            // of 16 rows of x, for a panel

MLXTS_INLINE uint32_t padded_tiles(uint32_t m) { return (m + kAmxRows - 1) / kAmxRows; }

// Whether scales and biases are so far from subnormal and infinite numbers that tiles take their bf16 for what they
// are.
inline bool fits_scaled(const float* scales, size_t n) {
  const vu32 least = uint32_t((127 - 80) << 23) - vu32{}, most = uint32_t(180 << 23) - vu32{};
  vu32 wrong = {};
  const auto check = [&](vf32 v) {
    const vu32 size = reinterpret_cast<vu32>(v) & 0x7fffffffu;
    wrong |= reinterpret_cast<vu32>((size != 0) & (size - least >= most));
  };
  size_t i = 0;
  for (; i + kLanes <= n; i += kLanes) check(load(scales + i));
  if (i < n) check(load_partial(scales + i, int(n - i)));
  uint32_t any = 0;
  for (int l = 0; l < kLanes; ++l) any |= wrong[l];
  return any == 0;
}

// m rows of bf16 x, of which row_at(i) is the address, as right tiles: panel by panel, 16 rows by 16 rows, step by
// step. Missing rows and columns are 0.
template <typename RowAt>
void order_right_tiles(uint32_t m, uint32_t cols, bf16* to, RowAt row_at) {
  const auto every_fourth = [](__m512i a, __m512i b, int first) {
    alignas(64) uint16_t from[32];
    for (int l = 0; l < 32; ++l) from[l] = uint16_t(4 * (l % 16) + (l < 16 ? first : first + 1));
    return _mm512_permutex2var_epi16(a, _mm512_load_si512(from), b);
  };
  for (uint32_t k = 0; k < cols; k += kScaledDepth) {
    for (uint32_t r0 = 0; r0 < m; r0 += kAmxRows, to += kRightSize) {
      vu32 steps[kScaledSteps][kAmxRows] = {};
      for (uint32_t r = 0; r < kAmxRows && r0 + r < m; ++r) {
        const uint8_t* row = row_at(r0 + r) + size_t(k) * sizeof(bf16);
        __m512i v[kScaledSteps];
        for (uint32_t i = 0; i < kScaledSteps; ++i)
          v[i] = k + i * kTileDepth < cols ? _mm512_loadu_si512(row + i * kAmxRowBytes) : _mm512_setzero_si512();
        for (uint32_t j = 0; j < kScaledSteps; j += 2) {
          const __m512i low = every_fourth(v[0], v[1], int(j)), high = every_fourth(v[2], v[3], int(j));
          steps[j][r] = reinterpret_cast<vu32>(_mm512_maskz_shuffle_i64x2(0xff, low, high, 0x44));
          steps[j + 1][r] = reinterpret_cast<vu32>(_mm512_maskz_shuffle_i64x2(0xff, low, high, 0xee));
        }
      }
      for (uint32_t j = 0; j < kScaledSteps; ++j) {
        transpose(steps[j]);
        for (size_t l = 0; l < kAmxRows; ++l) memcpy(to + j * kTileSize + l * kTileDepth, &steps[j][l], sizeof(vu32));
      }
    }
  }
}

// 32 rows of W, or as many as there are, with scales and biases in f32, `groups` a row.
struct ScaledPair {
  const uint8_t* words;
  uint32_t count, groups;
  const float *scales, *biases;
};

// Decodes the 128 columns from k on of a row, by tables of the 16 weights that the codes of each group of 64 mean: s
// and b are scales and biases of the two groups.
struct ScaledCodes {
  vf32 codes;
  __m512i mask = _mm512_set1_epi16(0xf);
  // The codes of the second half of the lanes are those of the second group.
  __m512i second = _mm512_maskz_inserti64x4(0xff, _mm512_setzero_si512(), _mm256_set1_epi16(0x10), 1);

  ScaledCodes() {
    for (int l = 0; l < kLanes; ++l) codes[l] = float(l);
  }
  static MLXTS_INLINE vf32 leading(vf32 v) { return reinterpret_cast<vf32>(reinterpret_cast<vu32>(v) & 0xffff0000u); }
  static MLXTS_INLINE __m512i pack(vf32 a, vf32 b) {
    return reinterpret_cast<__m512i>(_mm512_cvtne2ps_pbh(reinterpret_cast<__m512>(b), reinterpret_cast<__m512>(a)));
  }
  MLXTS_INLINE void decode(vu32 words, const vf32 (&s)[2], const vf32 (&b)[2], bf16* to) const {
    const vf32 first = fma(codes, s[0], b[0]), other = fma(codes, s[1], b[1]);
    const vf32 firstHigh = leading(first), otherHigh = leading(other);
    const __m512i high = pack(firstHigh, otherHigh), low = pack(first - firstHigh, other - otherHigh);
    MLXTS_UNROLL
    for (uint32_t j = 0; j < kScaledSteps; ++j, to += kStepSize) {
      const __m512i shifted = _mm512_srli_epi16(reinterpret_cast<__m512i>(words), 4 * j);
      const __m512i index = _mm512_ternarylogic_epi32(shifted, mask, second, 0xea);  // (shifted & mask) | second
      _mm512_store_si512(to, _mm512_permutexvar_epi16(index, high));
      _mm512_store_si512(to + 2 * kTileSize, _mm512_permutexvar_epi16(index, low));
    }
  }
};

// The panel of a pair from column k on; rows that are missing are the last one. The lines at `then` are fetched.
inline void decode_scaled_panel(const ScaledPair& w, uint32_t cols, uint32_t k, const uint8_t* then, bf16* panel) {
  const ScaledCodes codes;
  const size_t rowBytes = cols / 2, groupSize = cols / w.groups;
  const uint8_t* words = w.words + k / 2;
  const float *s = w.scales + k / groupSize, *b = w.biases + k / groupSize;
  const size_t other = groupSize == kScaledDepth ? 0 : 1;
  const bool half = k + kScaledDepth > cols;
  for (uint32_t r = 0; r < kPairRows; ++r) {
    if (then) __builtin_prefetch(then + r * rowBytes, 0, 2);
    bf16* to = panel + r / kAmxRows * kTileSize + r % kAmxRows * kTileDepth;
    if (half)
      codes.decode(load_words(words, kLanes / 2), {splat(*s), vf32{}}, {splat(*b), vf32{}}, to);
    else
      codes.decode(load_words(words), {splat(*s), splat(s[other])}, {splat(*b), splat(b[other])}, to);
    if (r + 1 >= w.count) continue;
    words += rowBytes;
    s += w.groups;
    b += w.groups;
  }
}

// Sums of a panel: 32 rows of W by 16 or 32 of x. They are added to `to` where there are some already. They stay in
// tiles until the next call needs these, so that nothing waits for them.
class ScaledSums {
 public:
  static constexpr size_t size(int xTiles) { return 2 * xTiles * kSumsSize; }

  template <int XTiles>
  __attribute__((noinline)) void add(const bf16* left, const bf16* right, float* to, bool more) {
    if (tiles_ != XTiles) store();
    const float* const from = to;
    float* const last = tiles_ ? last_ : nowhere_;
    const auto begin = [&]<int Tile>(std::integral_constant<int, Tile>) __attribute__((always_inline)) {
      store_sums<Tile>(last + Tile * kSumsSize);
      if (more)
        load_sums<Tile>(from + Tile * kSumsSize);
      else
        zero_sums<Tile>();
    };
    const auto step = [&]<bool First>(std::bool_constant<First>) __attribute__((always_inline)) {
      const auto sums = [&]<int Tile>(std::integral_constant<int, Tile> tile) __attribute__((always_inline)) {
        if constexpr (First) begin(tile);
      };
      _tile_loadd(6, right, kAmxRowBytes);
      _tile_loadd(4, left, kAmxRowBytes);
      sums(std::integral_constant<int, 0>());
      _tile_dpbf16ps(0, 4, 6);
      if constexpr (XTiles == 2) {
        _tile_loadd(7, right + kRightSize, kAmxRowBytes);
        sums(std::integral_constant<int, 1>());
        _tile_dpbf16ps(1, 4, 7);
        _tile_loadd(5, left + kTileSize, kAmxRowBytes);
        sums(std::integral_constant<int, 2>());
        _tile_dpbf16ps(2, 5, 6);
        sums(std::integral_constant<int, 3>());
        _tile_dpbf16ps(3, 5, 7);
        _tile_loadd(4, left + 2 * kTileSize, kAmxRowBytes);
        _tile_dpbf16ps(0, 4, 6);
        _tile_dpbf16ps(1, 4, 7);
        _tile_loadd(5, left + 3 * kTileSize, kAmxRowBytes);
        _tile_dpbf16ps(2, 5, 6);
        _tile_dpbf16ps(3, 5, 7);
      } else {
        _tile_loadd(5, left + kTileSize, kAmxRowBytes);
        sums(std::integral_constant<int, 1>());
        _tile_dpbf16ps(1, 5, 6);
        _tile_loadd(4, left + 2 * kTileSize, kAmxRowBytes);
        _tile_dpbf16ps(0, 4, 6);
        _tile_loadd(5, left + 3 * kTileSize, kAmxRowBytes);
        _tile_dpbf16ps(1, 5, 6);
      }
      left += kStepSize;
      right += kTileSize;
    };
    step(std::true_type());
    for (uint32_t j = 1; j < kScaledSteps; ++j) {
      for (uint32_t i = 0; i < size(XTiles) * sizeof(float) / (kScaledSteps - 1); i += 64)
        __builtin_prefetch(reinterpret_cast<const char*>(to + size(XTiles)) +
                               (j - 1) * (size(XTiles) * sizeof(float) / (kScaledSteps - 1)) + i,
                           1, 3);
      step(std::false_type());
    }
    last_ = to;
    tiles_ = XTiles;
  }
  // The sums of the last call.
  void store() {
    if (tiles_ > 0) {
      store_sums<0>(last_);
      store_sums<1>(last_ + kSumsSize);
    }
    if (tiles_ > 1) {
      store_sums<2>(last_ + 2 * kSumsSize);
      store_sums<3>(last_ + 3 * kSumsSize);
    }
    tiles_ = 0;
    AmxTiles::written();
  }

 private:
  const AmxTiles registers_;
  float* last_ = nullptr;
  int tiles_ = 0;  // of x, of the last call
  alignas(64) float nowhere_[4 * kSumsSize];
};

// The products of pairs of tiles of W and of all rows of x, `tiles` right tiles. Sums: [pair][two tiles of x, the last
// of an odd number alone][tile of W][tile of x], tiles of [row of W][row of x]. `then`, where there is one, has the
// words that are decoded after these.
inline void multiply_scaled(const bf16* x, uint32_t tiles, uint32_t cols, const ScaledPair* pairs, uint32_t count,
                            const uint8_t* then, bf16* panel, float* sums) {
  ScaledSums products;
  for (uint32_t k = 0; k < cols; k += kScaledDepth, x += tiles * kRightSize)
    for (uint32_t i = 0; i < count; ++i) {
      const uint8_t* next = i + 1 < count             ? pairs[i + 1].words + k / 2
                            : k + kScaledDepth < cols ? pairs[0].words + (k + kScaledDepth) / 2
                                                      : then;
      decode_scaled_panel(pairs[i], cols, k, next, panel);
      AmxTiles::written();
      const bf16* right = x;
      float* to = sums + size_t(i) * tiles * ScaledSums::size(1);
      for (uint32_t t = 0; t < tiles; t += 2, right += 2 * kRightSize, to += ScaledSums::size(2))
        t + 1 < tiles ? products.add<2>(panel, right, to, k > 0) : products.add<1>(panel, right, to, k > 0);
    }
  products.store();
}

// Rounds the sums of `count` rows of W from row0 on, with the bias added; those of row i of x go to row out_at(i).
template <typename OutAt>
void store_scaled(const Types& t, const Product& m, uint32_t rows, uint32_t row0, uint32_t count, const float* sums,
                  OutAt out_at) {
  alignas(64) float bias[kMostBlocks * kBlock] = {}, y[kAmxRows][kMostBlocks * kBlock];
  if (m.widenBias) m.widenBias(m.bias + row0 * m.biasBytes, bias, count);
  const uint32_t tiles = padded_tiles(rows);
  const size_t pairSize = tiles * ScaledSums::size(1);
  for (uint32_t i = 0; i < tiles; ++i) {
    const bool alone = i + 1 == tiles && tiles % 2 == 1;
    const float* from = sums + i / 2 * ScaledSums::size(2) + (alone ? 0 : i % 2 * kSumsSize);
    for (uint32_t r = 0; r < count; r += kAmxRows) {
      const float* tile = from + r / kPairRows * pairSize + r % kPairRows / kAmxRows * (alone ? 1 : 2) * kSumsSize;
      vf32 v[kLanes];
      for (int l = 0; l < kLanes; ++l) v[l] = load(tile + l * kLanes);
      transpose(v);
      for (int l = 0; l < kLanes; ++l) store(y[l] + r, v[l] + load(bias + r));
    }
    for (uint32_t l = 0; l < kAmxRows && i * kAmxRows + l < rows; ++l)
      t.out(y[l], out_at(i * kAmxRows + l) + row0 * t.outBytes, count);
  }
}
#endif

}  // namespace mlxts
