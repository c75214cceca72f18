// One threadgroup: 64 rows of W against a block of rows of x. W is decoded panel by panel, the lanes being rows of W,
// and meets six rows of x at a time in registers. bf16 x, where the processor multiplies bf16, meets the codes
// themselves (exact in bf16), scaled group by group; other x meet the weights in f32.
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

// One 32-bit word of each of kLanes rows.
MLXTS_INLINE vu32 gather(const uint8_t* p, const vi32& offsets) {
#if defined(__AVX512F__)
  return reinterpret_cast<vu32>(_mm512_i32gather_epi32(reinterpret_cast<__m512i>(offsets), p, 1));
#else
  vu32 v;
  for (int l = 0; l < kLanes; ++l) v[l] = load_word(p + offsets[l]);
  return v;
#endif
}

// The rows of W of a threadgroup: scales and biases by group, [groups, kBlock], 0 for rows that do not exist.
struct Block {
  const uint8_t* words;
  size_t rowBytes;
  uint32_t count, groupSize;
  const float *scales, *biases;

  // Byte offsets of the rows of vector v; rows that do not exist read the last one.
  MLXTS_INLINE vi32 offsets(uint32_t v) const {
    vi32 out;
    for (uint32_t l = 0; l < kLanes; ++l) {
      const uint32_t row = v * kLanes + l;
      out[l] = int32_t((row < count ? row : count - 1) * rowBytes);
    }
    return out;
  }
};

// Columns k0 … k0 + n − 1 of the weights: [strip][column][kStrip].
template <int Bits>
void decode_panel(const Block& w, uint32_t k0, uint32_t n, float* panel) {
  const Codes<Bits> codes;
  for (uint32_t v = 0; v * kLanes < round_up(w.count, kStrip); ++v) {
    const vi32 offsets = w.offsets(v);
    float* to = panel + v / kVectors * n * kStrip + v % kVectors * kLanes;
    const uint8_t* p = w.words + k0 / kPerWord<Bits> * 4;
    for (uint32_t k = 0; k < n;) {
      const uint32_t g = (k0 + k) / w.groupSize;
      const vf32 scale = load(w.scales + g * kBlock + v * kLanes), bias = load(w.biases + g * kBlock + v * kLanes);
      for (const uint32_t end = k + 32; k < end; k += kPerWord<Bits>, p += 4) {
        const vu32 words = codes.flip(gather(p, offsets));
#pragma GCC unroll 8
        for (int j = 0; j < kPerWord<Bits>; ++j) store(to + (k + j) * kStrip, fma(codes.at(words, j), scale, bias));
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

struct Scratch {
  float *x, *sums, *c, *scales, *biases, *run, *panel;
  size_t groupStride;
};

template <int Bits>
void load_block(const Types& t, const Product& m, uint32_t row0, uint32_t cols, const Scratch& s, Block& w) {
  const uint32_t groups = cols / w.groupSize;
  for (uint32_t r = 0; r < kBlock; r += 4) {
    const uint32_t n = r >= w.count ? 0 : w.count - r < 4 ? w.count - r : 4;
    float *scales = s.run, *biases = s.run + 4 * s.groupStride;
    widen_scales<Bits>(t, m, row0 + r, n, groups, s.groupStride, scales, biases);
    for (uint32_t i = 0; i < 4; ++i)
      for (uint32_t g = 0; g < groups; ++g) {
        s.scales[g * kBlock + r + i] = i < n ? scales[i * s.groupStride + g] : 0;
        s.biases[g * kBlock + r + i] = i < n ? biases[i * s.groupStride + g] : 0;
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
  s.run = pieces.take<float>(8 * s.groupStride);
  s.panel = pieces.take<float>(kBlock * kPairColumns / 2);
  const uint64_t blocks = l.threadgroups[0], mBlocks = l.threadgroups[1];
  uint64_t prepared = ~uint64_t(0);
  Product m{};
  const float* x = nullptr;
  for (uint64_t index = l.begin; index < l.end; ++index) {
    const uint32_t row0 = uint32_t(index % blocks) * kBlock;
    const uint64_t batch = index / blocks, z = batch / mBlocks;
    const uint32_t m0 = uint32_t(batch % mBlocks) * p.mBlock;
    const uint32_t rows = p.m - m0 < p.mBlock ? p.m - m0 : p.mBlock;
    if (batch != prepared) {
      m = product_at(l, t, p, Bits, z, true);
      const uint8_t* from = m.x + size_t(m0) * p.cols * t.xBytes;
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
    multiply_f32<Bits>(x, rows, p.cols, w, s);
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
