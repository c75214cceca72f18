// The insides of products with more rows of x. W is decoded panel by panel, the lanes being rows of W, and meets some
// rows of x at a time in registers. Where the processor multiplies bytes, x meets the codes themselves, scaled group by
// group: in tiles of bf16, exactly (panels_amx.h); else in limbs (panels_limbs.h), or with AVX2, where two limbs are
// enough, in numbers of 15 bits (panels_int16.h). For bf16 results tiles have the weights themselves, in two bf16
// (panels_scaled.h). Elsewhere x meets the weights in f32. P are params with rows, cols, groupSize, groupStride,
// mBlock, blocks and int8.
#pragma once
#include "panels_amx.h"
#include "panels_f32.h"
#include "panels_int16.h"
#include "panels_limbs.h"
#include "panels_scaled.h"

namespace mlxts {

// The scales and biases of a block of W, by group; `centered`: the biases for codes less kCenter.
template <int Bits, typename P, typename Scratch>
void load_scales(const Types& t, const Product& m, const P& p, uint32_t row0, const Scratch& s, bool centered,
                 float* scalesTo, float* biasesTo, Block& w) {
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
    for (size_t i = 0; centered && i < n * p.groupStride; i += kLanes)
      store(biases + i, centered_bias<Bits>(scales + i, biases + i));
    for (uint32_t g = 0; g < groups; g += kLanes) {
      transposed(scales, g, n, scalesTo + r);
      transposed(biases, g, n, biasesTo + r);
    }
  }
  w.scales = scalesTo;
  w.biases = biasesTo;
}

// Rows of x as tiles meet them: one of these; the others are null.
struct TileRows {
  const float* f32 = nullptr;
  const bf16* right = nullptr;  // right tiles, for scaled weights
  const bf16* parts = nullptr;  // in tiles
  const int8_t* limbs = nullptr;
  uint32_t limbCount = 0;  // of a number
  bool floats = false;     // whether sums of products with int16 are added as floats
  const int16_t* int16 = nullptr;
};

// Whether products with so many rows of x have scaled weights in tiles, where scales and x allow it.
template <int Bits, typename P>
bool wants_scaled([[maybe_unused]] const Types& t, [[maybe_unused]] const P& p, [[maybe_unused]] uint32_t rows) {
#if defined(__AMX_BF16__)
  return Bits == 4 && rows >= kLeastScaledRows && t.bf16x && t.bf16out && !p.int8 && p.groupSize * 2 >= kScaledDepth &&
         p.mBlock >= QUANTIZED_MATMUL_PADDED_ROWS;
#else
  return false;
#endif
}

// `rows` rows of x, of which row_at(i) is the address; rows of f32 that are neighbors already are used where they lie.
// `scaled`: for scaled weights; nothing where x does not allow it.
template <int Bits, typename P, typename Scratch, typename RowAt>
TileRows prepare_tiles(const Types& t, const P& p, uint32_t rows, const Scratch& s, bool neighbors,
                       [[maybe_unused]] bool scaled, RowAt row_at) {
#if defined(__AMX_BF16__)
  if (scaled) {
    bool fits = true;
    for (uint32_t r = 0; fits && r < rows; ++r) fits = fits_bf16_dot(row_at(r), p.cols);
    bf16* right = reinterpret_cast<bf16*>(s.activations);
    if (!fits) return {};
    order_right_tiles(rows, p.cols, right, row_at);
    return {.right = right};
  }
  if (p.mBlock >= QUANTIZED_MATMUL_PADDED_ROWS) {
    bool fits = true;
    for (uint32_t r = 0; fits && r < rows; ++r)
      fits = p.int8    ? fits_bytes(t, row_at(r), p.cols, p.groupSize)
             : t.bf16x ? fits_bf16_dot(row_at(r), p.cols)
                       : fits_limbs(t, row_at(r), p.cols);
    bf16* parts = reinterpret_cast<bf16*>(s.activations);
    const auto order = p.int8          ? order_byte_tiles<Bits>
                       : t.bf16x       ? order_parts<Bits, 1>
                       : t.xBytes == 2 ? order_parts<Bits, 2>
                                       : order_parts<Bits, 3>;
    for (uint32_t r = 0; fits && r < padded_rows(rows); ++r)
      order(t, r < rows ? row_at(r) : nullptr, p.cols, p.groupSize, rows, r, parts, s.sums);
    if (fits) return {.parts = parts};
  }
#endif
#if defined(__AVX512VNNI__)
  int8_t* limbs = reinterpret_cast<int8_t*>(s.activations);
  const uint32_t count = limbs_of(t, p.int8);
  if (order_rows<Bits>(t, count, rows, p.cols, p.groupSize, limbs, s.sums, row_at))
    return {.limbs = limbs, .limbCount = count};
#elif defined(__AVX2__)
  if (Bits == 4 && limbs_of(t, p.int8) < 3) {
    int16_t* numbers = reinterpret_cast<int16_t*>(s.activations);
    auto* groups = reinterpret_cast<Int16Group*>(s.sums);
    const bool floats = adds_floats(p.groupSize);
    bool fits = true;
    for (uint32_t r = 0; fits && r < rows; ++r)
      fits = order_int16(t, row_at(r), p.cols, p.groupSize, rows, r, p.int8, floats, numbers, groups);
    if (fits) return {.floats = floats, .int16 = numbers};
  }
#endif
  if (t.xBytes == 4 && neighbors && !p.int8) return {.f32 = reinterpret_cast<const float*>(row_at(0))};
  for (uint32_t r = 0; r < rows; ++r) {
    float* row = s.activations + size_t(r) * p.cols;
    t.x(row_at(r), row, p.cols);
    if (p.int8) round_to_bytes(row, p.cols, p.groupSize);
  }
  return {.f32 = s.activations};
}

// What a thread has prepared last for a dispatch (`prepared_in`), and whether for scaled weights.
struct PreparedRows {
  uint64_t rows;
  bool scaled;
  TileRows x;

  // As prepare_tiles, unless scratch holds these rows, of which `wanted` is the number.
  template <int Bits, typename P, typename Scratch, typename RowAt>
  const TileRows& prepare(uint64_t wanted, const Types& t, const P& p, uint32_t count, const Scratch& s, bool neighbors,
                          bool wantedScaled, RowAt row_at) {
    if (rows != wanted || scaled != wantedScaled)
      x = prepare_tiles<Bits>(t, p, count, s, neighbors, wantedScaled, row_at);
    rows = wanted;
    scaled = wantedScaled;
    return x;
  }
};
static_assert(sizeof(PreparedRows) <= 4 * QUANTIZED_MATMUL_PREPARED_WORDS);

// Steps in which products of m rows fetch what is next: those in f32 take longer, and there are fewer.
template <typename P>
size_t fetch_steps(const TileRows& x, uint32_t m, const P& p) {
  if (x.f32) return size_t(row_tiles(m, kPanelRows)) * ((p.cols + kF32Depth - 1) / kF32Depth);
  if (x.int16) return size_t(row_tiles(m, kPanelRows)) * ((p.cols + kCodeDepth - 1) / kCodeDepth);
  return size_t(row_tiles(m, kPanelRows / x.limbCount)) * (p.cols / p.groupSize);
}

// s.products = x · Wᵀ, [m, kBlock]. finish(r, count) is called for the rows r … r + count − 1 as soon as they are
// there, tile after tile.
template <int Bits, typename P, typename Scratch, typename Finish>
void multiply(const TileRows& x, uint32_t m, const P& p, const Block& w, Ahead& ahead, const Scratch& s,
              Finish finish) {
  memset(s.products, 0, size_t(m) * kBlock * 4);
#if defined(__AVX512VNNI__)
  if (x.limbCount == 1) return multiply_limbs<Bits, 1>(x.limbs, m, p.cols, w, ahead, s, finish);
  if (x.limbCount == 2) return multiply_limbs<Bits, 2>(x.limbs, m, p.cols, w, ahead, s, finish);
  if (x.limbCount == 3) return multiply_limbs<Bits, 3>(x.limbs, m, p.cols, w, ahead, s, finish);
#elif defined(__AVX2__)
  if (x.int16) {
    if (x.floats) return multiply_int16<true>(x.int16, m, p.cols, w, ahead, s, finish);
    return multiply_int16<false>(x.int16, m, p.cols, w, ahead, s, finish);
  }
#endif
  multiply_f32<Bits>(x.f32, m, p.cols, w, ahead, s, finish);
}

// Asks for columns row0 … row0 + count − 1 of the rows r … end − 1 of out: a store waits for the lines that it changes.
template <typename OutAt>
void fetch_rows(const Types& t, uint32_t r, uint32_t end, uint32_t row0, uint32_t count, OutAt out_at) {
  for (; r < end; ++r) {
    const uint8_t* row = out_at(r) + row0 * t.outBytes;
    for (size_t byte = 0; byte < count * t.outBytes; byte += 64) __builtin_prefetch(row + byte, 1, 3);
  }
}

// Rounds rows of c, with the bias added, to columns row0 … row0 + count − 1 of rows of out; row i of c goes to
// out_at(i).
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

// Rows row0 … of W, without their scales.
template <int Bits, typename P>
Block block_at(const P& p, BlockAt at) {
  const size_t rowBytes = size_t(p.cols) * Bits / 8;
  const uint32_t count = p.rows - at.row0 < kBlock ? p.rows - at.row0 : kBlock;
  return {at.product->weight + at.row0 * rowBytes, rowBytes, count, p.groupSize, nullptr, nullptr};
}

// The products of rows of x and of a block of W; those of row i of x go to row out_at(i). `next` is fetched meanwhile.
template <int Bits, typename P, typename Scratch, typename OutAt>
void multiply_block(const Types& t, const P& p, const TileRows& x, uint32_t rows, BlockAt block, BlockAt next,
                    const Scratch& s, OutAt out_at) {
  Block w = block_at<Bits>(p, block);
  const size_t groupBytes = p.cols / p.groupSize * t.scaleBytes;
  Ahead ahead;
  if (next.product)
    ahead.fetch(*next.product, next.row0, w.rowBytes, groupBytes, block_at<Bits>(p, next).count,
                fetch_steps(x, rows, p));
  load_scales<Bits>(t, *block.product, p, block.row0, s, !x.int16, s.scales, s.biases, w);
  // A function of its own: each size of tile would have a copy of it.
  multiply<Bits>(x, rows, p, w, ahead, s, [&](uint32_t r, uint32_t count) __attribute__((noinline)) {
    store_rows(t, *block.product, count, block.row0, w.count, s.products + r * kBlock,
               [&](uint32_t i) { return out_at(r + i); });
    // Those of the tile that follows come while it is multiplied.
    const uint32_t after = r + count, end = after + count;
    fetch_rows(t, after, end < rows ? end : rows, block.row0, w.count, out_at);
  });
}

#if defined(__AMX_BF16__)
// The same of up to kMostBlocks blocks that follow each other.
template <int Bits, typename P, typename Scratch, typename OutAt>
void multiply_blocks_in_tiles(const Types& t, const P& p, const bf16* x, uint32_t rows, BlockAt first, uint32_t count,
                              BlockAt next, const Scratch& s, OutAt out_at) {
  Block w[kMostBlocks];
  const size_t groups = p.cols / p.groupSize;
  const Product& m = *first.product;
  for (uint32_t b = 0; b < count; ++b) {
    const uint32_t row0 = first.row0 + b * kBlock;
    const size_t at = b * groups * kBlock;
    w[b] = block_at<Bits>(p, {&m, row0});
    load_scales<Bits>(t, m, p, row0, s, true, s.scales + at, s.biases + at, w[b]);
  }
  Block after;
  if (next.product) after = block_at<Bits>(p, next);
  const auto multiply = p.int8          ? multiply_parts<Bits, kInBytes, Scratch>
                        : t.bf16x       ? multiply_parts<Bits, 1, Scratch>
                        : t.xBytes == 2 ? multiply_parts<Bits, 2, Scratch>
                                        : multiply_parts<Bits, 3, Scratch>;
  const size_t size = size_t(padded_rows(rows)) * kBlock;
  memset(s.products, 0, count * size * sizeof(float));
  multiply(x, rows, p.cols, w, count, next.product ? &after : nullptr, s);
  for (uint32_t b = 0; b < count; ++b)
    store_rows(t, m, rows, first.row0 + b * kBlock, w[b].count, s.products + b * size, out_at);
}
#endif

#if defined(__AMX_BF16__)
// Scales and biases of a block in f32, [row][group]; whether tiles can have its weights.
template <typename P>
bool widen_block(const Types& t, const P& p, BlockAt at, float* scales, float* biases) {
  const uint32_t left = p.rows - at.row0, count = left < kBlock ? left : kBlock;
  const size_t groups = p.cols / p.groupSize, n = count * groups, from = at.row0 * groups * t.scaleBytes;
  t.scales(at.product->scales + from, scales, n);
  t.scales(at.product->biases + from, biases, n);
  return fits_scaled(scales, n) && fits_scaled(biases, n);
}

// As multiply_blocks_in_tiles, with scaled weights; scales and biases of all blocks are in scratch.
template <typename P, typename Scratch, typename OutAt>
void multiply_blocks_scaled(const Types& t, const P& p, const bf16* x, uint32_t rows, BlockAt first, uint32_t count,
                            BlockAt next, const Scratch& s, OutAt out_at) {
  ScaledPair pairs[kMostBlocks * kPairsOfBlock];
  const Product& m = *first.product;
  const size_t rowBytes = p.cols / 2;
  const uint32_t groups = p.cols / p.groupSize, left = p.rows - first.row0;
  const uint32_t wRows = left < count * kBlock ? left : count * kBlock;
  uint32_t n = 0;
  for (uint32_t r = 0; r < wRows; r += kPairRows)
    pairs[n++] = {m.weight + (first.row0 + r) * rowBytes, wRows - r < kPairRows ? wRows - r : kPairRows, groups,
                  s.scales + r * groups, s.biases + r * groups};
  multiply_scaled(x, padded_tiles(rows), p.cols, pairs, n,
                  next.product ? next.product->weight + next.row0 * rowBytes : nullptr,
                  reinterpret_cast<bf16*>(s.panel), s.products);
  store_scaled(t, m, rows, first.row0, wRows, s.products, out_at);
}
#endif

// The blocks first … last − 1 of the product with rows of x, which prepare(scaled) prepares, and `next` as
// multiply_block has it.
template <int Bits, typename P, typename Scratch, typename Prepare, typename OutAt>
void multiply_blocks(const Types& t, const P& p, uint32_t rows, const Product& m, uint32_t first, uint32_t last,
                     BlockAt next, const Scratch& s, Prepare prepare, OutAt out_at) {
  const auto at = [&](uint32_t block) { return block < last ? BlockAt{&m, block * kBlock} : next; };
  uint32_t block = first;
#if defined(__AMX_BF16__)
  const size_t groups = p.cols / p.groupSize * kBlock;
  if (wants_scaled<Bits>(t, p, rows) && prepare(true).right) {
    // Blocks that follow each other meet x at once; what a block meets is its own matter, so that results do not depend
    // on where ranges begin.
    while (block < last) {
      uint32_t count = 0;
      while (block + count < last && count < p.blocks &&
             widen_block(t, p, at(block + count), s.scales + count * groups, s.biases + count * groups))
        ++count;
      if (count > 0) {
        multiply_blocks_scaled(t, p, prepare(true).right, rows, at(block), count, at(block + count), s, out_at);
        block += count;
      } else {
        multiply_blocks_in_tiles<Bits>(t, p, prepare(false).parts, rows, at(block), 1, at(block + 1), s, out_at);
        ++block;
      }
    }
    return;
  }
#endif
  const TileRows& x = prepare(false);
#if defined(__AMX_BF16__)
  if (x.parts) {
    for (; block < last; block += p.blocks) {
      const uint32_t count = last - block < p.blocks ? last - block : p.blocks;
      multiply_blocks_in_tiles<Bits>(t, p, x.parts, rows, at(block), count, at(block + count), s, out_at);
    }
    return;
  }
#endif
  for (; block < last; ++block) multiply_block<Bits>(t, p, x, rows, at(block), at(block + 1), s, out_at);
}

}  // namespace mlxts
