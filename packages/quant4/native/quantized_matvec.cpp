// One threadgroup: 16 rows of W against all rows of x (few). x is brought once per launch into the order in which
// codes leave the words; each row of W is read from memory once, the next rows being fetched meanwhile.
#include "matvec_dot.h"
#include "quantized_matvec.params.h"

using namespace mlxts;

namespace {

constexpr uint32_t kRows = 16;  // of a threadgroup
constexpr uint32_t kMaxM = 8;
constexpr size_t kSpanBytes = 24 << 10;  // of x: what stays in the first cache beside rows of W

// x of one batch index, in scratch.
struct Activations {
  void* ordered;  // [m, xStride]: f32, or bf16 parts
  float* sums;    // [m, stride]: Σx of each group, 0 beyond
  size_t padded, stride;
  int parts;  // 0: f32
};

template <int Bits>
void order_f32(const float* unit, float* to) {
  for (int c = 0; c < 128; c += kChunk<Bits>)
    for (int j = 0; j < kPerWord<Bits>; ++j)
      for (int l = 0; l < kLanes; ++l) to[c + j * kLanes + l] = unit[c + l * kPerWord<Bits> + j];
}

#if defined(__AVX512BF16__)
// Splits 128 columns into bf16 parts and orders them for vdpbf16ps.
template <int Bits>
void order_bf16(float* unit, int parts, uint16_t* to) {
  constexpr int vectors = kBf16Vectors<Bits>;
  alignas(64) uint16_t half[128];
  for (int part = 0; part < parts; ++part) {
    for (int i = 0; i < 128; i += kLanes) {
      const vf32 x = load(unit + i);
      const vu16 bits = narrow(x, bf16{});
      memcpy(half + i, &bits, sizeof bits);
      store(unit + i, x - widen(bits, bf16{}));
    }
    for (int c = 0; c < 128 / (32 * vectors); ++c)
      for (int j = 0; j < vectors; ++j)
        for (int l = 0; l < 32; ++l) to[((c * parts + part) * vectors + j) * 32 + l] = half[(c * 32 + l) * vectors + j];
  }
}
#endif

template <int Bits>
void prepare(const Types& t, const QuantizedMatvecParams& p, const Product& m, Activations& a) {
  alignas(64) float unit[128];
  a.parts = 0;
#if defined(__AVX512BF16__)
  const int parts = t.bf16x ? 1 : t.xBytes == 2 ? 2 : 3;
  // f32 has three products for one: it gains only where decoding is what takes the time.
  if ((parts < 3 || (Bits == 4 && p.m == 1)) && fits_bf16_dot(t, m.x, size_t(p.m) * p.cols)) a.parts = parts;
#endif
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
#if defined(__AVX512BF16__)
      if (a.parts > 0) {
        order_bf16<Bits>(unit, a.parts, static_cast<uint16_t*>(a.ordered) + (i * a.padded + c) * a.parts);
        continue;
      }
#endif
      order_f32<Bits>(unit, static_cast<float*>(a.ordered) + i * a.padded + c);
    }
  }
}

// R rows of W at a time, then one at a time. Sums of row r start at sums[r·kMaxM].
template <int R, typename Dot, typename One>
void each_row(WeightRows w, uint32_t count, vf32* sums, Dot dot, One one) {
  while (count > 0) {
    const uint32_t n = count >= R ? R : 1;
    if (n == R)
      dot(w, sums);
    else
      one(w, sums);
    count -= n;
    w.words += n * w.rowBytes;
    w.scales += n * w.stride;
    sums += n * kMaxM;
  }
}

// Sums of R rows lie M apart in the inner loops and kMaxM apart here. Each span is summed by itself, so that very long
// rows lose nothing.
template <int R, int M, typename Dot>
void with_sums(vf32* sums, Dot dot) {
  vf32 acc[R * M] = {};
  dot(acc);
  for (int r = 0; r < R; ++r)
    for (int m = 0; m < M; ++m) sums[r * kMaxM + m] += acc[r * M + m];
}

// The words begin … end − 1 of `count` rows against M rows of x from m0 on.
template <int Bits, int R, int M, int Parts>
void span(const WeightRows& w, const Activations& a, uint32_t m0, uint32_t begin, uint32_t end, uint32_t count,
          vf32* sums) {
  const auto with = [&]<int N>(const WeightRows& rows, vf32* to, std::integral_constant<int, N>) {
    with_sums<N, M>(to, [&](vf32* acc) {
#if defined(__AVX512BF16__)
      if constexpr (Parts > 0) {
        const uint16_t* x = static_cast<const uint16_t*>(a.ordered);
        dot_bf16<Bits, N, M, Parts>(rows, x + m0 * a.padded * Parts, a.padded * Parts, begin, end, acc);
        return;
      }
#endif
      if constexpr (Parts == 0) {
        const float* x = static_cast<const float*>(a.ordered);
        dot_f32<Bits, N, M>(rows, x + m0 * a.padded, a.padded, begin, end, acc);
      }
    });
  };
  each_row<R>(
      w, count, sums + m0, [&](const WeightRows& rows, vf32* to) { with(rows, to, std::integral_constant<int, R>()); },
      [&](const WeightRows& rows, vf32* to) { with(rows, to, std::integral_constant<int, 1>()); });
}

// Registers hold R·M sums, in f32 twice.
constexpr int kWide = kLanes == 16 ? 4 : 2;

template <int Bits, int Parts>
void spans(const WeightRows& w, const Activations& a, uint32_t m, uint32_t count, vf32* sums) {
  const size_t columnBytes = (m < 4 ? m : 4) * (Parts > 0 ? 2 * Parts : 4);
  const uint32_t columns = uint32_t(round_up(kSpanBytes / columnBytes, kChunk<Bits>));
  const uint32_t step = columns / kPerWord<Bits>;
  for (uint32_t begin = 0; begin < w.count; begin += step) {
    const uint32_t end = w.count - begin < step ? w.count : begin + step;
    uint32_t m0 = 0;
    for (; m0 + 4 <= m; m0 += 4) span<Bits, kWide / 2, 4, Parts>(w, a, m0, begin, end, count, sums);
    if (m - m0 == 3) span<Bits, kWide / 2, 3, Parts>(w, a, m0, begin, end, count, sums);
    if (m - m0 == 2) span<Bits, kWide, 2, Parts>(w, a, m0, begin, end, count, sums);
    if (m - m0 == 1) span<Bits, 4, 1, Parts>(w, a, m0, begin, end, count, sums);
  }
}

template <int Bits>
void matvec(const Launch& l, const Types& t) {
  const auto& p = l.args<QuantizedMatvecParams>();
  const uint32_t groups = p.cols / p.groupSize;
  Activations a;
  a.padded = round_up(p.cols, 128);
  a.stride = round_up(groups, kLanes);
  Pieces scratch{static_cast<uint8_t*>(l.scratch)};
  a.ordered = scratch.take<uint16_t>(p.m * a.padded * 3);
  a.sums = scratch.take<float>(p.m * a.stride);
  float* scales = scratch.take<float>(kRows * a.stride);
  float* biases = scratch.take<float>(kRows * a.stride + 4);
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
    widen_scales(t, m, row0, count, groups, a.stride, scales, biases);
    const WeightRows w = {m.weight + row0 * rowBytes, rowBytes, p.cols / kPerWord<Bits>, scales, a.stride, lanes};
    vf32 sums[kRows * kMaxM];
    for (uint32_t r = 0; r < count; ++r)
      for (uint32_t i = 0; i < p.m; ++i) sums[r * kMaxM + i] = vf32{};
    switch (a.parts) {
#if defined(__AVX512BF16__)
      case 1:
        spans<Bits, 1>(w, a, p.m, count, sums);
        break;
      case 2:
        spans<Bits, 2>(w, a, p.m, count, sums);
        break;
      case 3:
        span<Bits, 4, 1, 3>(w, a, 0, 0, w.count, count, sums);
        break;
#endif
      default:
        spans<Bits, 0>(w, a, p.m, count, sums);
        break;
    }
    float bias[kRows];
    if (m.widenBias) m.widenBias(static_cast<const uint8_t*>(m.bias) + row0 * (p.biasDtype == 1 ? 4 : 2), bias, count);
    float y[kMaxM * kRows];
    for (uint32_t i = 0; i < p.m; ++i)
      for (uint32_t r = 0; r < count; ++r) {
        vf32 sum = sums[r * kMaxM + i];
        for (size_t g = 0; g < a.stride; g += kLanes)
          sum = fma(centered_bias<Bits>(scales + r * a.stride + g, biases + r * a.stride + g),
                    load(a.sums + i * a.stride + g), sum);
        y[i * kRows + r] = reduce_add(sum) + (m.widenBias ? bias[r] : 0);
      }
    for (uint32_t i = 0; i < p.m; ++i) t.out(y + i * kRows, m.out + (size_t(i) * p.rows + row0) * t.outBytes, count);
  }
}

}  // namespace

#define MATVEC(X, S, O, bits)                              \
  MLXTS_KERNEL(quantized_matvec_##X##_##S##_##O##_b##bits, \
               [](const Launch& launch) { matvec<bits>(launch, kTypes<X, S, O>); })
MLXTS_PRODUCT_VARIANTS(MATVEC)
