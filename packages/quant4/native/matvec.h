// The insides of products with few rows of x: x is brought once into the order in which codes leave the words
// (ordered_rows.h), then blocks of rows of W are multiplied with it (matvec_spans.h). P are params with rows, cols,
// groupSize, columnStride, groupStride and int8.
#pragma once
#include <optional>

#include "matrix_reduce.h"
#include "matvec_spans.h"

namespace mlxts {

// Rows of W that make a block: `count` from row0 on; or, far apart, as many from each of some parts of partRows rows.
struct BlockRows {
  uint32_t row0, count, parts = 1, partRows = 0;
};

// Adds the linear bias, rounds, and stores the products with the rows of a block, which product_at(i) gives for row i
// of x; those of row i of x and of the block's first row go to out_at(i).
template <typename ProductAt, typename OutAt>
void store_products(const Types& t, const Product& product, uint32_t m, const BlockRows& rows, ProductAt product_at,
                    const OutAt& out_at) {
  static_assert(kRows % kLanes == 0);
  const uint32_t each = rows.count / rows.parts;
  float bias[kRows] = {}, y[kRows], rounded[kRows];
  if (product.widenBias)
    for (uint32_t part = 0; part < rows.parts; ++part)
      product.widenBias(product.bias + (rows.row0 + part * rows.partRows) * product.biasBytes, bias + part * each,
                        each);
  for (uint32_t i = 0; i < m; ++i) {
    for (uint32_t r = 0; r < kRows; r += kLanes) store(y + r, product_at(i, r) + load(bias + r));
    if (rows.parts == 1) {
      t.out(y, out_at(i), each);
      continue;
    }
    t.out(y, rounded, rows.count);
    const auto* from = reinterpret_cast<const uint8_t*>(rounded);
    uint8_t* to = out_at(i);
    // A few bytes to each part: a call would cost more.
    const size_t bytes = each * t.outBytes, apart = rows.partRows * t.outBytes;
    for (uint32_t part = 0; part < rows.parts; ++part, from += bytes, to += apart)
      for (size_t b = 0; b < bytes; b += 2) memcpy(to + b, from + b, 2);
  }
}

// The products of a block of rows of W and of all rows of x. The block `next` is fetched meanwhile.
template <int Bits, typename P, typename OutAt>
void block_products(const Types& t, const P& p, const Product& product, const BlockRows& rows, const BlockAt& next,
                    const OrderedRows& x, const OutAt& out_at) {
  const size_t rowBytes = size_t(p.cols) * Bits / 8, scaleRowBytes = p.cols / p.groupSize * t.scaleBytes;
  const bool far = rows.parts > 1;
  const size_t apart = far ? rows.partRows : 1;
  WeightRows w = {product.weight + rows.row0 * rowBytes,
                  apart * rowBytes,
                  p.cols / kPerWord<Bits>,
                  product.scales + rows.row0 * scaleRowBytes,
                  product.biases + rows.row0 * scaleRowBytes,
                  apart * scaleRowBytes,
                  p.cols / p.groupSize,
                  rowBytes,
                  scaleRowBytes,
                  t.scaleType,
                  uint32_t(__builtin_ctz(p.groupSize)),
                  {}};
#if defined(__AMX_INT8__)
  if (in_tiles(x.form)) {
    alignas(64) float y[kMaxM * kRows];
    multiply_tiles<Bits>(w, tile_rows(x), rows.count, far, y);
    store_products(t, product, x.m, rows, [&](uint32_t i, uint32_t r) { return load(y + i * kRows + r); }, out_at);
    return;
  }
#endif
  if (!far) {  // else rows fetch for themselves
    const uint32_t end = rows.row0 + rows.count;
    const auto [then, row] = next.product ? next : BlockAt{&product, rows.row0};
    w.ahead = {distance(product.weight + end * rowBytes, then->weight + row * rowBytes),
               distance(product.scales + end * scaleRowBytes, then->scales + row * scaleRowBytes),
               distance(product.biases + end * scaleRowBytes, then->biases + row * scaleRowBytes)};
  }
#if defined(__AVX512VNNI__) && !defined(__AMX_INT8__)
  if (x.form == Form::groups) {
    alignas(64) float y[kMaxM * kRows];
    const LimbRows limbs = {static_cast<int8_t*>(x.ordered), x.sums, x.m, limbs_of(t, p.int8)};
    multiply_limb_rows<Bits>(w, limbs, rows.count, far, y);
    store_products(t, product, x.m, rows, [&](uint32_t i, uint32_t r) { return load(y + i * kRows + r); }, out_at);
    return;
  }
#endif
  vf32 sums[kRows * kMaxM];
  multiply<Bits>(w, x, rows.count, sums);
  for (uint32_t row = 0; row < rows.count; row += kRows) {
    const auto sum_lanes = [&](uint32_t i, uint32_t r) {
      vf32 lanes[kLanes];
      for (int l = 0; l < kLanes; ++l) lanes[l] = sums[(row + r + l) * x.m + i];
      return reduce_add_all(lanes);
    };
    BlockRows some = rows;
    some.row0 += row;
    some.count = rows.count - row < kRows ? rows.count - row : kRows;
    store_products(t, product, x.m, some, sum_lanes, [&](uint32_t i) { return out_at(i) + row * t.outBytes; });
  }
}

// The products of rows begin … end − 1 of W and of all rows of x; those of row i of x and of row `begin` go to
// out_at(i). The block `next` comes after them.
template <int Bits, typename P, typename OutAt>
void multiply_rows(const Types& t, const P& p, const Product& product, uint32_t begin, uint32_t end, BlockAt next,
                   const OrderedRows& x, OutAt out_at) {
  const auto multiply_at = [&](const BlockRows& rows, const BlockAt& after) {
    block_products<Bits>(t, p, product, rows, after, x,
                         [&](uint32_t i) { return out_at(i) + (rows.row0 - begin) * t.outBytes; });
  };
#if defined(__AMX_INT8__)
  std::optional<AmxTiles> tiles;
  if (in_tiles(x.form)) tiles.emplace();
#endif
  uint32_t row = begin;
#if defined(__AVX512VNNI__) && !defined(__AMX_INT8__)
  const bool far = x.form == Form::groups && kFarIsFaster;
#else
  constexpr bool far = kFarRows;
#endif
  if (far) {
    const uint32_t parts = in_tiles(x.form) ? kTileParts : kParts, each = kRows / parts;
    const uint32_t blocks = (end - begin) / kRows, partRows = blocks * each;
    for (uint32_t i = 0; i < blocks; ++i, row += each) multiply_at({row, kRows, parts, partRows}, {nullptr, 0});
    row = begin + blocks * kRows;
  }
  // Where rows are multiplied in parts, one part of x serves many of them; with AVX2, whose cores stop longer at the
  // end of a block than at that of a row, many save time anyway.
  const uint32_t words = p.cols / kPerWord<Bits>, shift = uint32_t(__builtin_ctz(p.groupSize));
  const bool parts = x.form < Form::tiles && span_words<Bits>(x.form, x.m, words, shift) < words;
  const uint32_t block = parts || kLanes == 8 ? kRows * (kMaxM / x.m) : kRows;
  for (; row < end; row += block)
    multiply_at({row, end - row < block ? end - row : block},
                row + block < end ? BlockAt{&product, row + block} : next);
}

}  // namespace mlxts
