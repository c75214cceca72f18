// The insides of products with few rows of x: x is brought once into the order in which codes leave the words; each row
// of W is read from memory once, the next rows being fetched meanwhile. P are params with rows, cols, groupSize,
// columnStride and groupStride.
#pragma once
#include "matvec_dot.h"
#include "quantized_matvec.params.h"

namespace mlxts {

constexpr uint32_t kRows = QUANTIZED_MATVEC_BLOCK_ROWS;  // of W of a threadgroup
constexpr uint32_t kMaxM = QUANTIZED_MATVEC_MOST_M;
constexpr uint32_t kUnit = QUANTIZED_MATVEC_UNIT;  // columns that are ordered together
constexpr size_t kSpanBytes = 24 << 10;            // of x: what stays in the first cache beside rows of W

// Rows of x in the order in which codes leave the words, in scratch.
struct OrderedRows {
  void* ordered;  // [m, columnStride]: f32, or bf16 parts
  float* sums;    // [m, groupStride]: Σx of each group, 0 beyond
  size_t columnStride;
  uint32_t m;  // rows
  int parts;   // 0: f32
};

template <int Bits>
void order_f32(const float* unit, float* to) {
  for (int c = 0; c < int(kUnit); c += kChunk<Bits>)
    for (int j = 0; j < kPerWord<Bits>; ++j)
      for (int l = 0; l < kLanes; ++l) to[c + j * kLanes + l] = unit[c + l * kPerWord<Bits> + j];
}

#if defined(__AVX512BF16__)
// Splits 128 columns into bf16 parts and orders them for vdpbf16ps.
template <int Bits>
void order_bf16(float* unit, int parts, uint16_t* to) {
  constexpr int vectors = kBf16Vectors<Bits>;
  alignas(64) uint16_t half[kUnit];
  for (int part = 0; part < parts; ++part) {
    for (int i = 0; i < int(kUnit); i += kLanes) {
      const vf32 x = load(unit + i);
      const vu16 bits = narrow(x, bf16{});
      memcpy(half + i, &bits, sizeof bits);
      store(unit + i, x - widen(bits, bf16{}));
    }
    for (int c = 0; c < int(kUnit) / (32 * vectors); ++c)
      for (int j = 0; j < vectors; ++j)
        for (int l = 0; l < 32; ++l) to[((c * parts + part) * vectors + j) * 32 + l] = half[(c * 32 + l) * vectors + j];
  }
}
#endif

// The `a.m` rows of which x_at(i) is the address.
template <int Bits, typename P, typename XAt>
void prepare(const Types& t, const P& p, XAt x_at, OrderedRows& a) {
  alignas(64) float unit[kUnit];
  a.parts = 0;
#if defined(__AVX512BF16__)
  const int parts = t.bf16x ? 1 : t.xBytes == 2 ? 2 : 3;
  // f32 has three products for one: it gains only where decoding is what takes the time.
  bool fits = parts < 3 || (Bits == 4 && a.m == 1);
  for (uint32_t i = 0; fits && i < a.m; ++i) fits = fits_bf16_dot(t, x_at(i), p.cols);
  if (fits) a.parts = parts;
#endif
  for (uint32_t i = 0; i < a.m; ++i) {
    const uint8_t* x = x_at(i);
    float* sums = a.sums + size_t(i) * p.groupStride;
    for (size_t g = 0; g < p.groupStride; ++g) sums[g] = 0;
    for (uint32_t c = 0; c < p.cols; c += kUnit) {
      const uint32_t n = p.cols - c < kUnit ? p.cols - c : kUnit;
      t.x(x + size_t(c) * t.xBytes, unit, n);
      for (uint32_t k = n; k < kUnit; ++k) unit[k] = 0;
      for (uint32_t k = 0; k < n; k += 32) {
        vf32 sum = load(unit + k);
        for (int j = kLanes; j < 32; j += kLanes) sum += load(unit + k + j);
        sums[(c + k) / p.groupSize] += reduce_add(sum);
      }
#if defined(__AVX512BF16__)
      if (a.parts > 0) {
        order_bf16<Bits>(unit, a.parts, static_cast<uint16_t*>(a.ordered) + (i * a.columnStride + c) * a.parts);
        continue;
      }
#endif
      order_f32<Bits>(unit, static_cast<float*>(a.ordered) + i * a.columnStride + c);
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
void span(const WeightRows& w, const OrderedRows& a, uint32_t m0, uint32_t begin, uint32_t end, uint32_t count,
          vf32* sums) {
  const auto with = [&]<int N>(const WeightRows& rows, vf32* to, std::integral_constant<int, N>) {
    with_sums<N, M>(to, [&](vf32* acc) {
#if defined(__AVX512BF16__)
      if constexpr (Parts > 0) {
        const uint16_t* x = static_cast<const uint16_t*>(a.ordered);
        dot_bf16<Bits, N, M, Parts>(rows, x + m0 * a.columnStride * Parts, a.columnStride * Parts, begin, end, acc);
        return;
      }
#endif
      if constexpr (Parts == 0) {
        const float* x = static_cast<const float*>(a.ordered);
        dot_f32<Bits, N, M>(rows, x + m0 * a.columnStride, a.columnStride, begin, end, acc);
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
void spans(const WeightRows& w, const OrderedRows& a, uint32_t m, uint32_t count, vf32* sums) {
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

// The products of `count` rows of W and of all rows of x: sums[r·kMaxM + m], still to be added up over lanes.
template <int Bits>
void multiply(const WeightRows& w, const OrderedRows& x, uint32_t count, vf32* sums) {
  const uint32_t m = x.m;
  for (uint32_t r = 0; r < count; ++r)
    for (uint32_t i = 0; i < m; ++i) sums[r * kMaxM + i] = vf32{};
  switch (x.parts) {
#if defined(__AVX512BF16__)
    case 1:
      return spans<Bits, 1>(w, x, m, count, sums);
    case 2:
      return spans<Bits, 2>(w, x, m, count, sums);
    case 3:
      return span<Bits, 4, 1, 3>(w, x, 0, 0, w.count, count, sums);
#endif
    default:
      return spans<Bits, 0>(w, x, m, count, sums);
  }
}
// All kernels share these, which are compiled with quantized_matvec.cpp.
extern template void multiply<4>(const WeightRows&, const OrderedRows&, uint32_t, vf32*);
extern template void multiply<8>(const WeightRows&, const OrderedRows&, uint32_t, vf32*);

// Adds what the biases of the groups give and the linear bias, rounds, and stores the products with rows row0 …
// row0 + count − 1 of W and row i of x at out_at(i).
template <int Bits, typename P, typename Scratch, typename OutAt>
void store_products(const Types& t, const P& p, const Product& product, const OrderedRows& x, const Scratch& scratch,
                    uint32_t row0, uint32_t count, const vf32* sums, OutAt out_at) {
  float bias[kRows], y[kRows];
  if (product.widenBias) product.widenBias(product.bias + row0 * product.biasBytes, bias, count);
  for (uint32_t i = 0; i < x.m; ++i) {
    for (uint32_t r = 0; r < count; ++r) {
      vf32 sum = sums[r * kMaxM + i];
      const float *scales = scratch.scales + r * p.groupStride, *biases = scratch.biases + r * p.groupStride;
      for (size_t g = 0; g < p.groupStride; g += kLanes)
        sum = fma(centered_bias<Bits>(scales + g, biases + g), load(x.sums + i * p.groupStride + g), sum);
      y[r] = reduce_add(sum) + (product.widenBias ? bias[r] : 0);
    }
    t.out(y, out_at(i), count);
  }
}

// Fetches the scales and biases of a block of rows.
template <typename P>
void fetch_scales(const Types& t, const P& p, BlockAt block) {
  const size_t rowBytes = p.cols / p.groupSize * t.scaleBytes;
  for (size_t at = block.row0 * rowBytes, end = at + kRows * rowBytes; at < end; at += 64) {
    __builtin_prefetch(block.product->scales + at, 0, 2);
    __builtin_prefetch(block.product->biases + at, 0, 2);
  }
}

// The products of `count` rows of a block of W and of all rows of x; those of row i of x go to out_at(i). The block
// `next` is fetched meanwhile.
template <int Bits, typename P, typename Scratch, typename OutAt>
void multiply_rows(const Types& t, const P& p, BlockAt block, uint32_t count, BlockAt next, const OrderedRows& x,
                   const Scratch& scratch, OutAt out_at) {
  const Product& product = *block.product;
  const uint32_t row0 = block.row0;
  const size_t rowBytes = size_t(p.cols) * Bits / 8;
  const uint8_t* words = product.weight + row0 * rowBytes;
  widen_scales(t, product, row0, count, p.cols / p.groupSize, p.groupStride, scratch.scales, scratch.biases);
  if (next.product) fetch_scales(t, p, next);
  const WeightRows w = {words,
                        rowBytes,
                        p.cols / kPerWord<Bits>,
                        scratch.scales,
                        p.groupStride,
                        LaneScales::of<Bits>(p.groupSize),
                        next.product ? next.product->weight + next.row0 * rowBytes - words : 0};
  vf32 sums[kRows * kMaxM];
  multiply<Bits>(w, x, count, sums);
  store_products<Bits>(t, p, product, x, scratch, row0, count, sums, out_at);
}

}  // namespace mlxts
