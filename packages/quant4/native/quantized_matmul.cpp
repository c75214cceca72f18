// One threadgroup: 64 rows of W against a block of rows of x. W is decoded panel by panel, the lanes being rows of W,
// and meets six rows of x at a time in registers. bf16 x, where the processor multiplies bf16, meets the codes
// themselves (exact in bf16), scaled group by group; other x meet the weights in f32.
#include <utility>

#include "product.h"
#include "quantized_matmul.params.h"

using namespace mlxts;

namespace {

constexpr uint32_t kBlock = 64;                  // rows of W of a threadgroup
constexpr int kVectors = kLanes == 16 ? 4 : 2;   // of rows of W in registers
constexpr uint32_t kStrip = kVectors * kLanes;   // rows of W in registers
constexpr uint32_t kTile = kLanes == 4 ? 4 : 6;  // rows of x in registers
constexpr uint32_t kPanelColumns = 256;          // of f32
constexpr uint32_t kPairColumns = 1024;          // of bf16

// v[i] lane l → v[l] lane i: log₂ kLanes rounds that interleave the halves.
template <int... I>
MLXTS_INLINE void transpose(vu32* v, std::integer_sequence<int, I...>) {
  for (int step = kLanes; step > 1; step /= 2) {
    vu32 next[kLanes];
#pragma GCC unroll 8
    for (int i = 0; i < kLanes / 2; ++i) {
      const vu32 a = v[i], b = v[i + kLanes / 2];
      next[2 * i] = __builtin_shufflevector(a, b, (I / 2 + I % 2 * kLanes)...);
      next[2 * i + 1] = __builtin_shufflevector(a, b, (kLanes / 2 + I / 2 + I % 2 * kLanes)...);
    }
#pragma GCC unroll 16
    for (int i = 0; i < kLanes; ++i) v[i] = next[i];
  }
}

// The rows of W of a threadgroup: scales and biases by group, [groups, kBlock], 0 for rows that do not exist.
struct Block {
  const uint8_t* words;
  size_t rowBytes;
  uint32_t count, groupSize;
  const float *scales, *biases;

  // The n ≤ kLanes words from `word` on of the rows of vector v: words[i] has word i of each. Rows that do not exist
  // read the last one.
  MLXTS_INLINE void load_transposed(uint32_t v, uint32_t word, uint32_t n, vu32* out) const {
    vu32 rows[kLanes];
    for (uint32_t l = 0; l < kLanes; ++l) {
      const uint32_t row = v * kLanes + l;
      const uint8_t* p = words + (row < count ? row : count - 1) * rowBytes + size_t(word) * 4;
      rows[l] = n == kLanes ? load_words(p) : load_words(p, n);
    }
    transpose(rows, std::make_integer_sequence<int, kLanes>());
    for (int i = 0; i < kLanes; ++i) out[i] = rows[i];
  }
};

// Columns k0 … k0 + n − 1 of the weights: [strip][column][kStrip].
template <int Bits>
void decode_panel(const Block& w, uint32_t k0, uint32_t n, float* panel) {
  const Codes<Bits> codes;
  for (uint32_t v = 0; v * kLanes < round_up(w.count, kStrip); ++v) {
    float* to = panel + v / kVectors * n * kStrip + v % kVectors * kLanes;
    for (uint32_t k = 0; k < n; k += kChunk<Bits>) {
      const uint32_t count = (n - k < uint32_t(kChunk<Bits>) ? n - k : kChunk<Bits>) / kPerWord<Bits>;
      vu32 words[kLanes];
      w.load_transposed(v, (k0 + k) / kPerWord<Bits>, count, words);
      for (uint32_t i = 0; i < count; ++i, to += kPerWord<Bits> * kStrip) {
        const size_t at = (k0 + k + i * kPerWord<Bits>) / w.groupSize * kBlock + v * kLanes;
        const vf32 scale = load(w.scales + at), bias = load(w.biases + at);
        const vu32 flipped = codes.flip(words[i]);
#pragma GCC unroll 8
        for (int j = 0; j < kPerWord<Bits>; ++j) store(to + j * kStrip, fma(codes.at(flipped, j), scale, bias));
      }
    }
  }
}

// c[R, kStrip] += x[R, n] · panel[n, kStrip]
template <int R>
void tile_f32(const float* x, size_t stride, const float* panel, uint32_t n, float* c) {
  vf32 acc[R][kVectors] = {};
  for (uint32_t k = 0; k < n; ++k) {
    vf32 w[kVectors];
#pragma GCC unroll 4
    for (int v = 0; v < kVectors; ++v) w[v] = load(panel + k * kStrip + v * kLanes);
#pragma GCC unroll 6
    for (int r = 0; r < R; ++r) {
      const vf32 a = splat(x[r * stride + k]);
#pragma GCC unroll 4
      for (int v = 0; v < kVectors; ++v) acc[r][v] = fma(a, w[v], acc[r][v]);
    }
  }
#pragma GCC unroll 6
  for (int r = 0; r < R; ++r)
#pragma GCC unroll 4
    for (int v = 0; v < kVectors; ++v)
      store(c + r * kBlock + v * kLanes, load(c + r * kBlock + v * kLanes) + acc[r][v]);
}

#if defined(__AVX512BF16__)
// Columns k0 … k0 + n − 1 of the codes as pairs of bf16: [pair][kBlock]. Pairs are of columns half a word apart.
template <int Bits>
void decode_pairs(const Block& w, uint32_t k0, uint32_t n, uint32_t* panel) {
  constexpr int pairs = kPerWord<Bits> / 2;
  alignas(64) uint16_t entries[32];
  for (int i = 0; i < 32; ++i) entries[i] = from_f32<bf16>(float(i % 16 - 8)).bits;
  const __m512i table = _mm512_load_si512(entries);
  for (uint32_t v = 0; v < kBlock / kLanes; ++v) {
    uint32_t* to = panel + v * kLanes;
    for (uint32_t k = 0; k < n; k += kChunk<Bits>) {
      const uint32_t count = (n - k < uint32_t(kChunk<Bits>) ? n - k : kChunk<Bits>) / kPerWord<Bits>;
      vu32 words[kLanes];
      w.load_transposed(v, (k0 + k) / kPerWord<Bits>, count, words);
      for (uint32_t i = 0; i < count; ++i, to += pairs * kBlock) {
#pragma GCC unroll 4
        for (int j = 0; j < pairs; ++j) {
          __m512i pair;
          if constexpr (Bits == 4) {
            const __m512i shifted = _mm512_srli_epi16(reinterpret_cast<__m512i>(words[i]), uint32_t(4 * j));
            pair = _mm512_permutexvar_epi16(shifted, table);
          } else {
            const vi32 flipped = reinterpret_cast<vi32>(words[i] ^ 0x80808080u);
            const vf32 low = __builtin_convertvector((flipped << (24 - 8 * j)) >> 24, vf32);
            const vf32 high = __builtin_convertvector((flipped << (8 - 8 * j)) >> 24, vf32);
            // Whole numbers up to 128 have no more bits than bf16.
            pair = reinterpret_cast<__m512i>((reinterpret_cast<vu32>(low) >> 16) |
                                             (reinterpret_cast<vu32>(high) & 0xffff0000u));
          }
          _mm512_store_si512(to + j * kBlock, pair);
        }
      }
    }
  }
}

// Rows of bf16 x with columns in the order of the pairs; Σx of each group.
template <int Bits>
void pack_pairs(const uint8_t* x, uint32_t rows, uint32_t cols, uint32_t groupSize, size_t stride, uint16_t* to,
                float* sums) {
  constexpr int per = kPerWord<Bits>;
  alignas(64) uint16_t order[32];
  for (int i = 0; i < 32; ++i) order[i] = uint16_t(i / per * per + i % per / 2 + (i % 2) * per / 2);
  const __m512i index = _mm512_load_si512(order);
  for (uint32_t r = 0; r < rows; ++r) {
    for (uint32_t g = 0; g < cols / groupSize; ++g) {
      vf32 sum = {};
      for (uint32_t k = 0; k < groupSize; k += 32) {
        const size_t at = size_t(r) * cols + size_t(g) * groupSize + k;
        const __m512i v = _mm512_loadu_si512(x + at * 2);
        _mm512_store_si512(to + at, _mm512_permutexvar_epi16(index, v));
        sum += reinterpret_cast<vf32>(_mm512_slli_epi32(v, 16)) +
               reinterpret_cast<vf32>(_mm512_and_si512(v, _mm512_set1_epi32(int(0xffff0000u))));
      }
      sums[r * stride + g] = reduce_add(sum);
    }
  }
}

// Hides from the compiler that p has been read before.
MLXTS_INLINE const float* anew(const float* p) {
  asm("" : "+r"(p));
  return p;
}

// c[R, kBlock] += Σ scale·(codes·x) + bias·Σx over `groups` groups of `pairs` pairs.
template <int R>
void tile_pairs(const uint16_t* x, size_t xStride, const uint32_t* panel, uint32_t groups, uint32_t pairs,
                const float* scales, const float* biases, const float* sums, size_t sumStride, float* c) {
  for (uint32_t g = 0; g < groups; ++g) {
    __m512 dot[R][4];
#pragma GCC unroll 6
    for (int r = 0; r < R; ++r)
#pragma GCC unroll 4
      for (int v = 0; v < 4; ++v) dot[r][v] = _mm512_setzero_ps();
    for (uint32_t k = 0; k < pairs; ++k, panel += kBlock, x += 2) {
      __m512bh code[4];
#pragma GCC unroll 4
      for (int v = 0; v < 4; ++v) code[v] = reinterpret_cast<__m512bh>(_mm512_load_si512(panel + v * 16));
#pragma GCC unroll 6
      for (int r = 0; r < R; ++r) {
        int32_t pair;
        memcpy(&pair, x + r * xStride, 4);
        const __m512bh a = reinterpret_cast<__m512bh>(_mm512_set1_epi32(pair));
#pragma GCC unroll 4
        for (int v = 0; v < 4; ++v) dot[r][v] = _mm512_dpbf16_ps(dot[r][v], a, code[v]);
      }
    }
#pragma GCC unroll 6
    for (int r = 0; r < R; ++r) {
      const vf32 sum = splat(sums[r * sumStride + g]);
      // Read again for each row: all of them do not fit beside the sums.
      const float *scale = anew(scales + g * kBlock), *bias = anew(biases + g * kBlock);
#pragma GCC unroll 4
      for (int v = 0; v < 4; ++v) {
        float* to = c + r * kBlock + v * 16;
        const vf32 with = fma(reinterpret_cast<vf32>(dot[r][v]), load(scale + v * 16), load(to));
        store(to, fma(sum, load(bias + v * 16), with));
      }
    }
  }
}
#endif

struct Scratch {
  float *x, *sums, *c, *scales, *biases, *run, *panel;
  size_t groupStride;
};

template <int Bits>
void load_block(const Types& t, const Product& m, uint32_t row0, uint32_t cols, const Scratch& s, Block& w) {
  const uint32_t groups = cols / w.groupSize;
  float *scales = s.run, *biases = s.run + kLanes * s.groupStride;
  const auto transposed = [&](const float* from, uint32_t g, uint32_t rows, float* to) {
    vu32 v[kLanes] = {};
    for (uint32_t l = 0; l < rows; ++l) v[l] = reinterpret_cast<vu32>(load(from + l * s.groupStride + g));
    transpose(v, std::make_integer_sequence<int, kLanes>());
    for (uint32_t i = 0; i < kLanes && g + i < groups; ++i) store(to + (g + i) * kBlock, reinterpret_cast<vf32>(v[i]));
  };
  for (uint32_t r = 0; r < kBlock; r += kLanes) {
    const uint32_t n = r >= w.count ? 0 : w.count - r < kLanes ? w.count - r : kLanes;
    widen_scales(t, m, row0 + r, n, groups, s.groupStride, scales, biases);
    for (size_t i = 0; i < n * s.groupStride; i += kLanes)
      store(biases + i, centered_bias<Bits>(scales + i, biases + i));
    for (uint32_t g = 0; g < groups; g += kLanes) {
      transposed(scales, g, n, s.scales + r);
      transposed(biases, g, n, s.biases + r);
    }
  }
  w.scales = s.scales;
  w.biases = s.biases;
}

// Calls tile(r, std::integral_constant<R>) over m rows of x.
template <typename Tile>
MLXTS_INLINE void for_tiles(uint32_t m, Tile tile) {
  uint32_t r = 0;
  for (; r + kTile <= m; r += kTile) tile(r, std::integral_constant<int, kTile>());
  switch (m - r) {
    case 5:
      tile(r, std::integral_constant<int, 5>());
      break;
    case 4:
      tile(r, std::integral_constant<int, 4>());
      break;
    case 3:
      tile(r, std::integral_constant<int, 3>());
      break;
    case 2:
      tile(r, std::integral_constant<int, 2>());
      break;
    case 1:
      tile(r, std::integral_constant<int, 1>());
      break;
    default:
      break;
  }
}

template <int Bits>
void multiply_f32(const float* x, uint32_t m, uint32_t cols, const Block& w, const Scratch& s) {
  for (uint32_t k0 = 0; k0 < cols; k0 += kPanelColumns) {
    const uint32_t n = cols - k0 < kPanelColumns ? cols - k0 : kPanelColumns;
    decode_panel<Bits>(w, k0, n, s.panel);
    for (uint32_t strip = 0; strip * kStrip < w.count; ++strip)
      for_tiles(m, [&](uint32_t r, auto R) {
        tile_f32<R>(x + size_t(r) * cols + k0, cols, s.panel + strip * n * kStrip, n,
                    s.c + r * kBlock + strip * kStrip);
      });
  }
}

#if defined(__AVX512BF16__)
template <int Bits>
void multiply_pairs(const uint16_t* x, uint32_t m, uint32_t cols, const Block& w, const Scratch& s) {
  const uint32_t pairs = w.groupSize / 2;
  for (uint32_t k0 = 0; k0 < cols; k0 += kPairColumns) {
    const uint32_t n = cols - k0 < kPairColumns ? cols - k0 : kPairColumns;
    const uint32_t g0 = k0 / w.groupSize;
    uint32_t* panel = reinterpret_cast<uint32_t*>(s.panel);
    decode_pairs<Bits>(w, k0, n, panel);
    for_tiles(m, [&](uint32_t r, auto R) {
      tile_pairs<R>(x + size_t(r) * cols + k0, cols, panel, n / w.groupSize, pairs, w.scales + g0 * kBlock,
                    w.biases + g0 * kBlock, s.sums + r * s.groupStride + g0, s.groupStride, s.c + r * kBlock);
    });
  }
}
#endif

template <int Bits>
void matmul(const Launch& l, const Types& t) {
  const auto& p = l.args<QuantizedMatmulParams>();
  const uint32_t groups = p.cols / p.groupSize;
  Scratch s;
  s.groupStride = round_up(groups, kLanes);
  Pieces pieces{static_cast<uint8_t*>(l.scratch)};
  s.x = pieces.take<float>(size_t(p.mBlock) * p.cols);
  s.sums = pieces.take<float>(p.mBlock * s.groupStride);
  s.c = pieces.take<float>(size_t(p.mBlock) * kBlock);
  s.scales = pieces.take<float>(groups * kBlock);
  s.biases = pieces.take<float>(groups * kBlock);
  s.run = pieces.take<float>(2 * kLanes * s.groupStride);
  s.panel = pieces.take<float>(kBlock * kPairColumns / 2);
  const uint64_t blocks = l.threadgroups[0], mBlocks = l.threadgroups[1];
  uint64_t prepared = ~uint64_t(0);
  Product m{};
  const float* x = nullptr;
  bool pairs = false;  // x is packed for vdpbf16ps
  for (uint64_t index = l.begin; index < l.end; ++index) {
    const uint32_t row0 = uint32_t(index % blocks) * kBlock;
    const uint64_t batch = index / blocks, z = batch / mBlocks;
    const uint32_t m0 = uint32_t(batch % mBlocks) * p.mBlock;
    const uint32_t rows = p.m - m0 < p.mBlock ? p.m - m0 : p.mBlock;
    if (batch != prepared) {
      m = product_at(l, t, p, Bits, z, true);
      const uint8_t* from = m.x + size_t(m0) * p.cols * t.xBytes;
#if defined(__AVX512BF16__)
      pairs = t.bf16x && fits_pairs(t, from, size_t(rows) * p.cols);
      if (pairs) {
        pack_pairs<Bits>(from, rows, p.cols, p.groupSize, s.groupStride, reinterpret_cast<uint16_t*>(s.x), s.sums);
      } else
#endif
          if (t.xBytes == 4) {
        x = reinterpret_cast<const float*>(from);
      } else {
        t.x(from, s.x, size_t(rows) * p.cols);
        x = s.x;
      }
      prepared = batch;
    }
    const size_t rowBytes = size_t(p.cols) * Bits / 8;
    Block w{m.weight + row0 * rowBytes,
            rowBytes,
            p.rows - row0 < kBlock ? p.rows - row0 : kBlock,
            p.groupSize,
            nullptr,
            nullptr};
    load_block<Bits>(t, m, row0, p.cols, s, w);
    memset(s.c, 0, size_t(rows) * kBlock * 4);
#if defined(__AVX512BF16__)
    if (pairs) multiply_pairs<Bits>(reinterpret_cast<const uint16_t*>(s.x), rows, p.cols, w, s);
#endif
    if (!pairs) multiply_f32<Bits>(x, rows, p.cols, w, s);
    float bias[kBlock];
    if (m.widenBias)
      m.widenBias(static_cast<const uint8_t*>(m.bias) + row0 * (p.biasDtype == 1 ? 4 : 2), bias, w.count);
    for (uint32_t i = 0; i < rows; ++i) {
      float* from = s.c + i * kBlock;
      if (m.widenBias)
        for (uint32_t r = 0; r < w.count; ++r) from[r] += bias[r];
      t.out(from, m.out + (size_t(m0 + i) * p.rows + row0) * t.outBytes, w.count);
    }
  }
}

}  // namespace

#define MATMUL(X, S, O, bits)                              \
  MLXTS_KERNEL(quantized_matmul_##X##_##S##_##O##_b##bits, \
               [](const Launch& launch) { matmul<bits>(launch, kTypes<X, S, O>); })
MLXTS_PRODUCT_VARIANTS(MATMUL)
