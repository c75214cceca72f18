// The insides of products with more rows of x. W is decoded panel by panel, the lanes being rows of W, and meets some
// rows of x at a time in registers. bf16 x, where the processor multiplies bf16, meets the codes themselves (exact in
// bf16), scaled group by group; other x meet the weights in f32. P are params with rows, cols, groupSize and groupStride.
#pragma once
#include "matrix_microkernel.h"
#include "matrix_transpose.h"
#include "product.h"
#include "quantized_matmul.params.h"

namespace mlxts {

constexpr uint32_t kBlock = QUANTIZED_MATMUL_BLOCK_ROWS;      // rows of W of a threadgroup
constexpr uint32_t kF32Depth = QUANTIZED_MATMUL_F32_DEPTH;    // columns of W in a panel of f32
constexpr uint32_t kBf16Depth = QUANTIZED_MATMUL_BF16_DEPTH;  // and of bf16
static_assert(kLanes <= QUANTIZED_MATMUL_LANES);

// The rows of W of a threadgroup: scales and biases by group, [groups, kBlock], 0 for rows that do not exist.
struct Block {
  const uint8_t* words;
  size_t rowBytes;
  uint32_t count, groupSize;
  const float *scales, *biases;

  // The n ≤ kLanes words from `word` on of the rows of vector v: words[i] has word i of each. Rows that do not exist
  // read the last one.
  MLXTS_INLINE void load_transposed(uint32_t v, uint32_t word, uint32_t n, vu32 (&out)[kLanes]) const {
    for (uint32_t l = 0; l < kLanes; ++l) {
      const uint32_t row = v * kLanes + l;
      const uint8_t* p = words + (row < count ? row : count - 1) * rowBytes + size_t(word) * 4;
      out[l] = n == kLanes ? load_words(p) : load_words(p, n);
    }
    transpose(out);
  }
};

// Tiles into which m rows of x are cut.
MLXTS_INLINE uint32_t row_tiles(uint32_t m) { return (m + kPanelRows - 1) / kPanelRows; }

// A block of W that will be needed next: it is fetched line by line while products keep the processor busy.
struct Ahead {
  struct Span {
    const uint8_t *next, *end;
  };
  Span spans[3] = {};
  uint32_t lines = 0;  // at a time
  int at = 0;          // the span that is being fetched

  // `bytes` of words and `groupBytes` of scales and of biases from rows row0 on, in so many steps.
  void fetch(const Product& m, uint32_t row0, size_t rowBytes, size_t groupBytes, uint32_t rows, size_t steps) {
    spans[0] = {m.weight + row0 * rowBytes, m.weight + (row0 + rows) * rowBytes};
    spans[1] = {m.scales + row0 * groupBytes, m.scales + (row0 + rows) * groupBytes};
    spans[2] = {m.biases + row0 * groupBytes, m.biases + (row0 + rows) * groupBytes};
    lines = uint32_t(rows * (rowBytes + 2 * groupBytes) / 64 / steps + 1);
  }
  MLXTS_INLINE void step() {
    for (uint32_t left = lines; left > 0 && at < 3;) {
      Span& span = spans[at];
      if (span.next >= span.end) {
        ++at;
        continue;
      }
      __builtin_prefetch(span.next, 0, 2);
      span.next += 64;
      --left;
    }
  }
};

// Columns k0 … k0 + n − 1 of the weights, decoded: panels [n][kPanelColumns], one after the other.
template <int Bits>
void decode_f32_panels(const Block& w, uint32_t k0, uint32_t n, float* panels) {
  const Codes<Bits> codes;
  for (uint32_t v = 0; v * kLanes < round_up(w.count, kPanelColumns); ++v) {
    float* to = panels + v / kTileVectors * n * kPanelColumns + v % kTileVectors * kLanes;
    for (uint32_t k = 0; k < n; k += kChunk<Bits>) {
      const uint32_t count = (n - k < uint32_t(kChunk<Bits>) ? n - k : kChunk<Bits>) / kPerWord<Bits>;
      vu32 words[kLanes];
      w.load_transposed(v, (k0 + k) / kPerWord<Bits>, count, words);
      for (uint32_t i = 0; i < count; ++i, to += kPerWord<Bits> * kPanelColumns) {
        const size_t at = (k0 + k + i * kPerWord<Bits>) / w.groupSize * kBlock + v * kLanes;
        const vf32 scale = load(w.scales + at), bias = load(w.biases + at);
        const vu32 flipped = codes.flip(words[i]);
#pragma GCC unroll 8
        for (int j = 0; j < kPerWord<Bits>; ++j) store(to + j * kPanelColumns, fma(codes.at(flipped, j), scale, bias));
      }
    }
  }
}

// c[R, kPanelColumns] += x[R, n] · panel[n, kPanelColumns]
template <int R>
void multiply_f32_panel(const float* x, size_t stride, const float* panel, uint32_t n, float* c) {
  RegisterTile<R, kTileVectors> tile;
  tile.accumulate(x, stride, 1, panel, kPanelColumns, n);
  tile.each([&](size_t r, size_t column, vf32 sum) {
    float* to = c + r * kBlock + column;
    store(to, load(to) + sum);
  });
}

#if defined(__AVX512BF16__)
// Columns k0 … k0 + n − 1 of the codes, a panel of bf16x2: [n / 2][kBlock]. The two columns are half a word apart.
template <int Bits>
void decode_bf16_panel(const Block& w, uint32_t k0, uint32_t n, bf16x2* panel) {
  constexpr int kSteps = kPerWord<Bits> / 2;
  alignas(64) uint16_t entries[32];
  for (int i = 0; i < 32; ++i) entries[i] = from_f32<bf16>(float(i % 16 - 8)).bits;
  const __m512i table = _mm512_load_si512(entries);
  for (uint32_t v = 0; v < kBlock / kLanes; ++v) {
    bf16x2* to = panel + v * kLanes;
    for (uint32_t k = 0; k < n; k += kChunk<Bits>) {
      const uint32_t count = (n - k < uint32_t(kChunk<Bits>) ? n - k : kChunk<Bits>) / kPerWord<Bits>;
      vu32 words[kLanes];
      w.load_transposed(v, (k0 + k) / kPerWord<Bits>, count, words);
      for (uint32_t i = 0; i < count; ++i, to += kSteps * kBlock) {
#pragma GCC unroll 4
        for (int j = 0; j < kSteps; ++j) {
          vu32 codes;
          if constexpr (Bits == 4) {
            const __m512i shifted = _mm512_srli_epi16(reinterpret_cast<__m512i>(words[i]), uint32_t(4 * j));
            codes = reinterpret_cast<vu32>(_mm512_permutexvar_epi16(shifted, table));
          } else {
            const vi32 flipped = reinterpret_cast<vi32>(words[i] ^ 0x80808080u);
            const vf32 first = __builtin_convertvector((flipped << (24 - 8 * j)) >> 24, vf32);
            const vf32 second = __builtin_convertvector((flipped << (8 - 8 * j)) >> 24, vf32);
            // Whole numbers up to 128 have no more bits than bf16.
            codes = (reinterpret_cast<vu32>(first) >> 16) | (reinterpret_cast<vu32>(second) & 0xffff0000u);
          }
          store_bf16x2(to + j * kBlock, codes);
        }
      }
    }
  }
}

// A row of bf16 x with columns in the order in which panels of codes have them; Σx of each group.
template <int Bits>
void order_bf16(const uint8_t* x, uint32_t cols, uint32_t groupSize, bf16* to, float* sums) {
  constexpr int per = kPerWord<Bits>;
  alignas(64) uint16_t order[32];
  for (int i = 0; i < 32; ++i) order[i] = uint16_t(i / per * per + i % per / 2 + (i % 2) * per / 2);
  const __m512i index = _mm512_load_si512(order);
  for (uint32_t g = 0; g < cols / groupSize; ++g) {
    vf32 sum = {};
    for (uint32_t k = g * groupSize; k < (g + 1) * groupSize; k += 32) {
      const __m512i v = _mm512_loadu_si512(x + size_t(k) * 2);
      _mm512_store_si512(to + k, _mm512_permutexvar_epi16(index, v));
      sum += widen_first(reinterpret_cast<vu32>(v)) + widen_second(reinterpret_cast<vu32>(v));
    }
    sums[g] = reduce_add(sum);
  }
}

// Hides from the compiler that p has been read before.
MLXTS_INLINE const float* anew(const float* p) {
  asm("" : "+r"(p));
  return p;
}

// c[R, kBlock] += Σ scale·(codes·x) + bias·Σx over `groups` groups, of `depth` bf16x2 each.
template <int R>
void multiply_bf16_panel(const bf16* x, size_t xStride, const bf16x2* panel, uint32_t groups, uint32_t depth,
                         const float* scales, const float* biases, const float* sums, size_t sumStride, float* c,
                         Ahead& ahead) {
  for (uint32_t g = 0; g < groups; ++g, x += 2 * depth, panel += depth * kBlock) {
    ahead.step();
    RegisterTile<R, kBlock / kLanes> dot;
    dot.accumulate(x, xStride, 2, panel, kBlock, depth);
#pragma GCC unroll 6
    for (int r = 0; r < R; ++r) {
      const vf32 sum = splat(sums[r * sumStride + g]);
      // Read again for each row: all of them do not fit beside the sums.
      const float *scale = anew(scales + g * kBlock), *bias = anew(biases + g * kBlock);
#pragma GCC unroll 4
      for (int v = 0; v < dot.vectors; ++v) {
        float* to = c + r * kBlock + v * kLanes;
        const vf32 with = fma(dot.sum[r][v], load(scale + v * kLanes), load(to));
        store(to, fma(sum, load(bias + v * kLanes), with));
      }
    }
  }
}
#endif

// The scales and centered biases of a block of W, by group.
template <int Bits, typename P, typename Scratch>
void load_scales(const Types& t, const Product& m, const P& p, uint32_t row0, const Scratch& s, Block& w) {
  const uint32_t groups = p.cols / p.groupSize;
  float *scales = s.rowScales, *biases = s.rowBiases;
  const auto transposed = [&](const float* from, uint32_t g, uint32_t rows, float* to) {
    vf32 v[kLanes] = {};
    for (uint32_t l = 0; l < rows; ++l) v[l] = load(from + l * p.groupStride + g);
    transpose(v);
    for (uint32_t i = 0; i < kLanes && g + i < groups; ++i) store(to + (g + i) * kBlock, v[i]);
  };
  for (uint32_t r = 0; r < kBlock; r += kLanes) {
    const uint32_t n = r >= w.count ? 0 : w.count - r < kLanes ? w.count - r : kLanes;
    widen_scales(t, m, row0 + r, n, groups, p.groupStride, scales, biases);
    for (size_t i = 0; i < n * p.groupStride; i += kLanes)
      store(biases + i, centered_bias<Bits>(scales + i, biases + i));
    for (uint32_t g = 0; g < groups; g += kLanes) {
      transposed(scales, g, n, s.scales + r);
      transposed(biases, g, n, s.biases + r);
    }
  }
  w.scales = s.scales;
  w.biases = s.biases;
}

// multiply(r, std::integral_constant<R>) for tiles of R ≤ kPanelRows rows of x from row r on, as equal as can be: small
// tiles leave the processor waiting for its own sums.
template <typename Multiply>
MLXTS_INLINE void for_row_tiles(uint32_t m, Multiply multiply) {
  const uint32_t tiles = row_tiles(m);
  for (uint32_t i = 0, r = 0; i < tiles; ++i) {
    const uint32_t rows = (m - r + tiles - i - 1) / (tiles - i);
    [&]<int... Less>(std::integer_sequence<int, Less...>) {
      ((rows == Less + 1 ? multiply(r, std::integral_constant<int, Less + 1>()) : void()), ...);
    }(std::make_integer_sequence<int, kPanelRows>());
    r += rows;
  }
}

// Rows of x as tiles meet them: f32, or bf16 in the order of the codes.
struct TileRows {
  const float* f32;
  const bf16* ordered;  // null: f32 is used
};

// `rows` rows of x, of which row_at(i) is the address; rows of f32 that are neighbors already are used where they lie.
template <int Bits, typename P, typename Scratch, typename RowAt>
TileRows prepare_tiles(const Types& t, const P& p, uint32_t rows, const Scratch& s, bool neighbors, RowAt row_at) {
#if defined(__AVX512BF16__)
  bool fits = t.bf16x;
  for (uint32_t r = 0; fits && r < rows; ++r) fits = fits_bf16_dot(t, row_at(r), p.cols);
  if (fits) {
    bf16* ordered = reinterpret_cast<bf16*>(s.activations);
    for (uint32_t r = 0; r < rows; ++r)
      order_bf16<Bits>(row_at(r), p.cols, p.groupSize, ordered + size_t(r) * p.cols, s.sums + r * p.groupStride);
    return {nullptr, ordered};
  }
#endif
  if (t.xBytes == 4 && neighbors) return {reinterpret_cast<const float*>(row_at(0)), nullptr};
  for (uint32_t r = 0; r < rows; ++r) t.x(row_at(r), s.activations + size_t(r) * p.cols, p.cols);
  return {s.activations, nullptr};
}

// c[m, kBlock] = x · Wᵀ
template <int Bits, typename Scratch>
void multiply_f32(const float* x, uint32_t m, uint32_t cols, const Block& w, Ahead ahead, const Scratch& s) {
  for (uint32_t k0 = 0; k0 < cols; k0 += kF32Depth) {
    const uint32_t n = cols - k0 < kF32Depth ? cols - k0 : kF32Depth;
    decode_f32_panels<Bits>(w, k0, n, s.panel);
    for (uint32_t column = 0; column < w.count; column += kPanelColumns)
      for_row_tiles(m, [&](uint32_t r, auto R) {
        ahead.step();
        multiply_f32_panel<R>(x + size_t(r) * cols + k0, cols, s.panel + column * n, n,
                              s.products + r * kBlock + column);
      });
  }
}

template <int Bits, typename P, typename Scratch>
void multiply(const TileRows& x, uint32_t m, const P& p, const Block& w, Ahead ahead, const Scratch& s) {
  const uint32_t cols = p.cols;
  memset(s.products, 0, size_t(m) * kBlock * 4);
#if defined(__AVX512BF16__)
  for (uint32_t k0 = 0; x.ordered && k0 < cols; k0 += kBf16Depth) {
    const uint32_t n = cols - k0 < kBf16Depth ? cols - k0 : kBf16Depth, g0 = k0 / w.groupSize;
    bf16x2* panel = reinterpret_cast<bf16x2*>(s.panel);
    decode_bf16_panel<Bits>(w, k0, n, panel);
    for_row_tiles(m, [&](uint32_t r, auto R) {
      multiply_bf16_panel<R>(x.ordered + size_t(r) * cols + k0, cols, panel, n / w.groupSize, w.groupSize / 2,
                             w.scales + g0 * kBlock, w.biases + g0 * kBlock, s.sums + r * p.groupStride + g0,
                             p.groupStride, s.products + r * kBlock, ahead);
    });
  }
#endif
  if (!x.ordered) multiply_f32<Bits>(x.f32, m, cols, w, ahead, s);
}

// Rounds rows of c, with the bias added, to columns row0 … row0 + count − 1 of rows of out; row i of c goes to out_at(i).
template <typename OutAt>
void store_rows(const Types& t, const Product& m, uint32_t rows, uint32_t row0, uint32_t count, float* c,
                OutAt out_at) {
  float bias[kBlock];
  if (m.widenBias) m.widenBias(m.bias + row0 * m.biasBytes, bias, count);
  for (uint32_t i = 0; i < rows; ++i, c += kBlock) {
    if (m.widenBias)
      for (uint32_t r = 0; r < count; ++r) c[r] += bias[r];
    t.out(c, out_at(i) + row0 * t.outBytes, count);
  }
}

// The products of rows of x and of a block of W; those of row i of x go to row out_at(i). `next` is fetched meanwhile.
template <int Bits, typename P, typename Scratch, typename OutAt>
void multiply_block(const Types& t, const P& p, const TileRows& x, uint32_t rows, BlockAt block, BlockAt next,
                    const Scratch& s, OutAt out_at) {
  const Product& m = *block.product;
  const uint32_t row0 = block.row0;
  const size_t rowBytes = size_t(p.cols) * Bits / 8, groupBytes = p.cols / p.groupSize * t.scaleBytes;
  const auto rows_from = [&](uint32_t row) { return p.rows - row < kBlock ? p.rows - row : kBlock; };
  Block w{m.weight + row0 * rowBytes, rowBytes, rows_from(row0), p.groupSize, nullptr, nullptr};
  Ahead ahead;
  // A step of products in f32 takes longer, and there are fewer.
  if (next.product)
    ahead.fetch(*next.product, next.row0, rowBytes, groupBytes, rows_from(next.row0),
                row_tiles(rows) * (x.ordered ? p.cols / p.groupSize : (p.cols + kF32Depth - 1) / kF32Depth));
  load_scales<Bits>(t, m, p, row0, s, w);
  multiply<Bits>(x, rows, p, w, ahead, s);
  store_rows(t, m, rows, row0, w.count, s.products, out_at);
}

}  // namespace mlxts
