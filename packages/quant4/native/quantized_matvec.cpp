// One threadgroup: 16 rows of W against all rows of x (few). x is brought once per launch into the order in which
// codes leave the words; each row of W is read once, the next rows being fetched meanwhile.
#include "product.h"
#include "quantized_matvec.params.h"

using namespace mlxts;

namespace {

constexpr uint32_t kRows = 16;   // of a threadgroup
constexpr uint32_t kAtOnce = 4;  // rows of W whose scales are held
constexpr uint32_t kMaxM = 8;

// x of one batch index, in scratch.
struct Activations {
  float* ordered;  // [m, padded]: chunk by chunk, code by code, lane by lane
  float* sums;     // [m, stride]: Σx of each group, 0 beyond
  size_t padded, stride;
  bool pairs;  // ordered holds bf16 for vdpbf16ps
};

template <int Bits>
void order_f32(const float* unit, float* to) {
  for (int c = 0; c < 128; c += kChunk<Bits>)
    for (int j = 0; j < kPerWord<Bits>; ++j)
      for (int l = 0; l < kLanes; ++l) to[c + j * kLanes + l] = unit[c + l * kPerWord<Bits> + j];
}

template <int Bits>
void prepare(const Types& t, const QuantizedMatvecParams& p, const Product& m, Activations& a) {
  alignas(64) float unit[128];
  for (uint32_t i = 0; i < p.m; ++i) {
    const uint8_t* x = m.x + size_t(i) * p.cols * t.xBytes;
    float* sums = a.sums + i * a.stride;
    for (size_t g = 0; g < a.stride; ++g) sums[g] = 0;
    for (uint32_t c = 0; c < p.cols; c += 128) {
      const uint32_t n = p.cols - c < 128 ? p.cols - c : 128;
      t.x(x + size_t(c) * t.xBytes, unit, n);
      for (uint32_t k = n; k < 128; ++k) unit[k] = 0;
      for (uint32_t k = 0; k < n; k += 32) {
        vf32 sum = load(unit + k);
        for (int j = kLanes; j < 32; j += kLanes) sum += load(unit + k + j);
        sums[(c + k) / p.groupSize] += reduce_add(sum);
      }
      order_f32<Bits>(unit, a.ordered + i * a.padded + c);
    }
  }
}

struct Rows {
  const uint8_t* words;  // of the first row
  size_t rowBytes;
  uint32_t count;       // words in a row
  const float* scales;  // [rows, stride]
  size_t stride;
  LaneScales lanes;
};

// acc[r][m] = Σ scale·(q − c)·x over lanes.
template <int Bits, int R, int M>
void dot_f32(const Rows& w, const float* x, size_t padded, vf32* out) {
  const Codes<Bits> codes;
  vf32 acc[R][M] = {};
  const auto chunk = [&](size_t column, const vu32* words) __attribute__((always_inline)) {
    vf32 dot[R][M];
#pragma GCC unroll 8
    for (int j = 0; j < kPerWord<Bits>; ++j) {
      vf32 v[M];
#pragma GCC unroll 8
      for (int m = 0; m < M; ++m) v[m] = load(x + m * padded + column + j * kLanes);
#pragma GCC unroll 4
      for (int r = 0; r < R; ++r) {
        const vf32 code = codes.at(words[r], j);
#pragma GCC unroll 8
        for (int m = 0; m < M; ++m) dot[r][m] = j == 0 ? code * v[m] : fma(code, v[m], dot[r][m]);
      }
    }
#pragma GCC unroll 4
    for (int r = 0; r < R; ++r) {
      const vf32 scale = w.lanes.at(w.scales + r * w.stride, column);
#pragma GCC unroll 8
      for (int m = 0; m < M; ++m) acc[r][m] = fma(dot[r][m], scale, acc[r][m]);
    }
  };
  uint32_t word = 0;
  for (; word + kLanes <= w.count; word += kLanes) {
    vu32 words[R];
#pragma GCC unroll 4
    for (int r = 0; r < R; ++r) {
      const uint8_t* p = w.words + r * w.rowBytes + word * 4;
      __builtin_prefetch(p + R * w.rowBytes);
      words[r] = codes.flip(load_words(p));
    }
    chunk(size_t(word) * kPerWord<Bits>, words);
  }
  if (word < w.count) {
    vu32 words[R];
    for (int r = 0; r < R; ++r) words[r] = codes.flip(load_words(w.words + r * w.rowBytes + word * 4, w.count - word));
    chunk(size_t(word) * kPerWord<Bits>, words);
  }
  for (int r = 0; r < R; ++r)
    for (int m = 0; m < M; ++m) out[r * M + m] = acc[r][m];
}

// y[m][r] of R rows and M rows of x.
template <int Bits, int R, int M>
void dot(const Rows& w, const float* biases, const Activations& a, uint32_t m0, float* y) {
  vf32 acc[R * M];
  dot_f32<Bits, R, M>(w, a.ordered + m0 * a.padded, a.padded, acc);
  for (int r = 0; r < R; ++r)
    for (int m = 0; m < M; ++m) {
      vf32 sum = acc[r * M + m];
      for (size_t g = 0; g < a.stride; g += kLanes)
        sum = fma(load(biases + r * w.stride + g), load(a.sums + (m0 + m) * a.stride + g), sum);
      y[(m0 + m) * kRows + r] = reduce_add(sum);
    }
}

template <int Bits, int R, int M>
void dot_rows(Rows w, const float* biases, const Activations& a, uint32_t m0, uint32_t count, float* y) {
  uint32_t r = 0;
  const auto next = [&](uint32_t n) {
    r += n;
    w.words += n * w.rowBytes;
    w.scales += n * w.stride;
    biases += n * w.stride;
    y += n;
  };
  for (; r + R <= count; next(R)) dot<Bits, R, M>(w, biases, a, m0, y);
  for (; r < count; next(1)) dot<Bits, 1, M>(w, biases, a, m0, y);
}

// Registers hold R·M sums twice.
constexpr int kWide = kLanes == 16 ? 4 : 2;

template <int Bits>
void dot_all(const Rows& w, const float* biases, const Activations& a, uint32_t m, uint32_t count, float* y) {
  uint32_t m0 = 0;
  for (; m0 + 4 <= m; m0 += 4) dot_rows<Bits, kWide / 2, 4>(w, biases, a, m0, count, y);
  if (m - m0 == 3) dot_rows<Bits, kWide / 2, 3>(w, biases, a, m0, count, y);
  if (m - m0 == 2) dot_rows<Bits, kWide, 2>(w, biases, a, m0, count, y);
  if (m - m0 == 1) dot_rows<Bits, 4, 1>(w, biases, a, m0, count, y);
}

template <int Bits>
void matvec(const Launch& l, const Types& t) {
  const auto& p = l.args<QuantizedMatvecParams>();
  const uint32_t groups = p.cols / p.groupSize;
  Activations a;
  a.padded = round_up(p.cols, 128);
  a.stride = round_up(groups, kLanes);
  Pieces scratch{static_cast<uint8_t*>(l.scratch)};
  a.ordered = scratch.take<float>(p.m * a.padded);
  a.sums = scratch.take<float>(p.m * a.stride);
  float* scales = scratch.take<float>(kAtOnce * a.stride);
  float* biases = scratch.take<float>(kAtOnce * a.stride + 4);
  const size_t rowBytes = size_t(p.cols) * Bits / 8;
  const LaneScales lanes = LaneScales::of<Bits>(p.groupSize);
  const uint64_t blocks = l.threadgroups[0];
  uint64_t prepared = ~uint64_t(0);
  Product m{};
  for (uint64_t index = l.begin; index < l.end; ++index) {
    const uint64_t z = index / blocks;
    const uint32_t row0 = uint32_t(index % blocks) * kRows;
    const uint32_t count = p.rows - row0 < kRows ? p.rows - row0 : kRows;
    if (z != prepared) {
      m = product_at(l, t, p, Bits, z, true);
      prepare<Bits>(t, p, m, a);
      prepared = z;
    }
    alignas(64) float y[kMaxM * kRows];
    for (uint32_t r = 0; r < count; r += kAtOnce) {
      const uint32_t n = count - r < kAtOnce ? count - r : kAtOnce;
      widen_scales<Bits>(t, m, row0 + r, n, groups, a.stride, scales, biases);
      const Rows w = {m.weight + (row0 + r) * rowBytes, rowBytes, p.cols / kPerWord<Bits>, scales, a.stride, lanes};
      dot_all<Bits>(w, biases, a, p.m, n, y + r);
    }
    float bias[kRows];
    if (m.widenBias) m.widenBias(static_cast<const uint8_t*>(m.bias) + row0 * (p.biasDtype == 1 ? 4 : 2), bias, count);
    for (uint32_t i = 0; i < p.m; ++i) {
      float* from = y + i * kRows;
      if (m.widenBias)
        for (uint32_t r = 0; r < count; ++r) from[r] += bias[r];
      t.out(from, m.out + (size_t(i) * p.rows + row0) * t.outBytes, count);
    }
  }
}

}  // namespace

#define MATVEC(X, S, O, bits)                              \
  MLXTS_KERNEL(quantized_matvec_##X##_##S##_##O##_b##bits, \
               [](const Launch& launch) { matvec<bits>(launch, kTypes<X, S, O>); })
MLXTS_PRODUCT_VARIANTS(MATVEC)
