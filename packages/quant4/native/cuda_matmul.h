// metal_matmul.h in a CUDA translation. With x of 16 bits, codes never become a tile: each lane takes those of its
// operands from the words, which lie in threadgroup memory as in W. Tiles are brought several ahead.
#pragma once
#include "matmul_metal.h"

namespace mlxts {

constant constexpr uint kAhead = QUANTIZED_MATMUL_TILES;  // tiles in threadgroup memory
constant constexpr uint kDeep = 64;                       // columns of a tile

// Two and two centered codes as the right operand of a product with columns 16 k … of a tile: pair j and pair j + 4 of
// the eight there, for lane 4 g + j.
template <typename X, int Bits>
struct RightCodes;
METAL_FUNC uint centered4(uint codes, bfloat) {  // 128 + q, minus 136
  return machine::bf16_fma_pair((codes & 0x000f000fu) | 0x43004300u, 0x3f803f80u, 0xc308c308u);
}
METAL_FUNC uint centered4(uint codes, half) {  // 1024 + q, minus 1032
  return machine::f16_subtract_pair((codes & 0x000f000fu) | 0x64006400u, 0x64086408u);
}
template <typename X>
struct RightCodes<X, 4> {
  // `words` of a row of a tile.
  METAL_FUNC static void load(thread uint (&words)[8], threadgroup const uint* row, uint) {
    const uint4 low = *(threadgroup const uint4*)row, high = *(threadgroup const uint4*)(row + 4);
    MLXTS_UNROLL for (uint i = 0; i < 4; ++i) words[i] = low[i], words[i + 4] = high[i];
  }
  METAL_FUNC static void pairs(thread uint (&b)[2], thread const uint (&words)[8], uint k, uint j) {
    const uint both = machine::bytes_of(words[2 * k], words[2 * k + 1], j * 0x111u + 0x400u);
    const uint even = centered4(both, X()), odd = centered4(both >> 4, X());
    b[0] = machine::bytes_of(even, odd, 0x5410);
    b[1] = machine::bytes_of(even, odd, 0x7632);
  }
};
METAL_FUNC uint centered8(uint word, uint byte, bfloat) {  // 2²³ + q, minus 2²³ + 128
  const float low = as_type<float>(machine::bytes_of(word, 0x4b000000u, 0x7650u + byte));
  const float high = as_type<float>(machine::bytes_of(word, 0x4b000000u, 0x7651u + byte));
  return machine::bf16_pair(low - 8388736.0f, high - 8388736.0f);
}
METAL_FUNC uint centered8(uint word, uint byte, half) {  // 1024 + q, minus 1152
  return machine::f16_subtract_pair(machine::bytes_of(word, 0x64646464u, 0x4140u + byte * 0x101u), 0x64806480u);
}
template <typename X>
struct RightCodes<X, 8> {
  METAL_FUNC static void load(thread uint (&words)[8], threadgroup const uint* row, uint j) {
    MLXTS_UNROLL for (uint i = 0; i < 8; ++i) words[i] = row[2 * i + j / 2];
  }
  METAL_FUNC static void pairs(thread uint (&b)[2], thread const uint (&words)[8], uint k, uint j) {
    MLXTS_UNROLL for (uint i = 0; i < 2; ++i) b[i] = centered8(words[2 * k + i], j % 2 * 2, X());
  }
};

// What arrives of x and W while earlier tiles are multiplied: tile t in place t % kAhead. `Narrow`: groups of 32
// columns, two of which a tile has.
template <typename X, typename S, int Bits, bool Narrow>
struct ProductStream {
  // Pieces of 16 bytes of a row of a tile, and those that a thread brings.
  static constant constexpr uint kXRow = kDeep / 8, kWRow = kDeep * Bits / 128;
  static constant constexpr uint kXOwn = kM * kXRow / kThreads, kWOwn = kN * kWRow / kThreads;
  static constant constexpr uint kXStride = tile_stride<X>(kDeep), kWStride = kDeep * Bits / 32;  // elements; words
  static constant constexpr uint kScalesOwn = 2 * kN / kThreads;
  static_assert(kM * kXRow % kThreads == 0 && kN * kWRow % kThreads == 0 && 2 * kN % kThreads == 0,
                "every thread brings as much");

  AffineMatrix<S, Bits> w;
  threadgroup X* x_tiles;
  threadgroup uint* w_tiles;
  threadgroup float* scales;  // of two tiles: those of their rows, then the biases; for each half of a tile
  device const X* x_from[kXOwn];
  device const uint* w_from[kWOwn];
  device const S* scales_from[kScalesOwn];
  S held[kScalesOwn][2];
  uint index;
  bool x_aligned, w_aligned;

  template <typename XAt, typename Scratch>
  METAL_FUNC ProductStream(XAt x_at, AffineMatrix<S, Bits> w, Scratch scratch, uint row0, uint m, uint index)
      : w(w),
        x_tiles((threadgroup X*)scratch.xTiles),
        w_tiles((threadgroup uint*)scratch.wTiles),
        scales(scratch.scales),
        index(index) {
    // Rows that do not exist are others' once more: nobody stores their products.
    MLXTS_UNROLL for (uint i = 0; i < kXOwn; ++i) {
      const uint at = index + i * kThreads;
      x_from[i] = x_at(metal::min(at / kXRow, m - 1)) + at % kXRow * 8;
    }
    MLXTS_UNROLL for (uint i = 0; i < kWOwn; ++i) {
      const uint at = index + i * kThreads, row = metal::min(row0 + at / kWRow, w.rows - 1);
      w_from[i] = w.words + ulong(row) * (w.cols / 32 * Bits) + at % kWRow * 4;
    }
    MLXTS_UNROLL for (uint i = 0; i < kScalesOwn; ++i) {
      const uint at = index + i * kThreads, row = metal::min(row0 + at % kN, w.rows - 1);
      scales_from[i] = (at < kN ? w.scales : w.biases) + ulong(row) * (w.cols / w.groupSize);
    }
    x_aligned = (ulong(x_from[0]) & 15) == 0;
    w_aligned = (ulong(w_from[0]) & 15) == 0;
  }

  // The tile whose first column is `column`; columns beyond the last are zeros in x.
  METAL_FUNC void start(uint column) {
    const uint place = column / kDeep % kAhead;
    if (column < w.cols) {
      MLXTS_UNROLL for (uint i = 0; i < kXOwn; ++i) {
        const uint at = index + i * kThreads;
        const bool exists = column + at % kXRow * 8 < w.cols;
        threadgroup X* to = x_tiles + (place * kM + at / kXRow) * kXStride + at % kXRow * 8;
        device const X* from = x_from[i] + (exists ? column : 0);
        if (x_aligned)
          machine::copy_start<16>(to, from, exists ? 16 : 0);
        else
          for (uint n = 0; n < 8; ++n) to[n] = exists ? from[n] : X(0.0f);
      }
      MLXTS_UNROLL for (uint i = 0; i < kWOwn; ++i) {
        const uint at = index + i * kThreads;
        const bool exists = column + at % kWRow * (128 / Bits) < w.cols;
        threadgroup uint* to = w_tiles + (place * kN + at / kWRow) * kWStride + at % kWRow * 4;
        device const uint* from = w_from[i] + (exists ? column / 32 * Bits : 0);
        if (w_aligned)
          machine::copy_start<16>(to, from, exists ? 16 : 0);
        else
          for (uint n = 0; n < 4; ++n) to[n] = exists ? from[n] : 0;
      }
    }
    machine::copies_end();
  }

  // Scales and biases: on their way for the tile at `column`, and stored for it.
  METAL_FUNC void start_scales(uint column) {
    const uint shift = metal::ctz(w.groupSize), last = w.cols / w.groupSize - 1;
    MLXTS_UNROLL for (uint i = 0; i < kScalesOwn; ++i) {
      held[i][0] = scales_from[i][metal::min(column >> shift, last)];
      if (Narrow) held[i][1] = scales_from[i][metal::min((column >> shift) + 1, last)];
    }
  }
  METAL_FUNC void finish_scales(uint column) {
    threadgroup float* to = scales + column / kDeep % 2 * 4 * kN;
    MLXTS_UNROLL for (uint i = 0; i < kScalesOwn; ++i) {
      to[index + i * kThreads] = float(held[i][0]);
      if (Narrow) to[2 * kN + index + i * kThreads] = float(held[i][1]);
    }
  }

  METAL_FUNC threadgroup const X* x_row(uint column, uint row) const {
    return x_tiles + (column / kDeep % kAhead * kM + row) * kXStride;
  }
  METAL_FUNC threadgroup const uint* w_row(uint column, uint row) const {
    return w_tiles + (column / kDeep % kAhead * kN + row) * kWStride;
  }
  METAL_FUNC threadgroup const float* scales_of(uint column, uint half_tile) const {
    return scales + (column / kDeep % 2 * 2 + half_tile) * 2 * kN;
  }
};

// products += scale·Σqx + offset·Σx, over a tile or half of one.
template <uint Columns, int Bits, typename X>
METAL_FUNC void add_group(thread Products& products, thread const GroupSums<X>& group, threadgroup const float* scales,
                          uint lane) {
  float x[kPartM / 8];
  MLXTS_UNROLL for (uint r = 0; r < kPartM / 8; ++r) x[r] = group.x.total(r);
  MLXTS_UNROLL for (uint c = 0; c < Columns / 8; ++c) {
    const float2 scale = *(threadgroup const float2*)(scales + 8 * c + matrix_column(lane));
    const float2 bias = *(threadgroup const float2*)(scales + kN + 8 * c + matrix_column(lane));
    MLXTS_UNROLL for (uint e = 0; e < 2; ++e) {
      const float offset = centered<Bits>(scale[e], bias[e]);
      MLXTS_UNROLL for (uint r = 0; r < kPartM / 8; ++r) {
        thread float& sum = products.at(r, c, e);
        sum = metal::fma(scale[e], group.products.at(r, c, e), metal::fma(offset, x[r], sum));
      }
    }
  }
}

// Adds the products of the tile at `column`.
template <uint Columns, typename X, typename S, int Bits, bool Narrow>
METAL_FUNC void multiply_tile(thread Products& products, thread const ProductStream<X, S, Bits, Narrow>& stream,
                              ProductPart part, uint column, uint lane) {
  typedef RightCodes<X, Bits> Right;
  threadgroup const X* x = stream.x_row(column, part.row);
  threadgroup const uint* w = stream.w_row(column, part.column + lane / 4);
  uint words[Columns / 8][8];
  MLXTS_UNROLL for (uint c = 0; c < Columns / 8; ++c) Right::load(words[c], w + c * 8 * stream.kWStride, lane % 4);
  GroupSums<X> group;
  clear(group);
  MLXTS_UNROLL for (uint k = 0; k < kDeep / 16; ++k) {
    TileLeft<X, kPartM, 16> left;
    load(left, x + k * 16, stream.kXStride);
    MLXTS_UNROLL for (uint c = 0; c < Columns / 8; ++c) {
      uint b[2];
      Right::pairs(b, words[c], k, lane % 4);
      MLXTS_UNROLL for (uint r = 0; r < kPartM / 16; ++r)
          Pairs<X>::multiply_add(group.products.blocks[r][c], left.blocks[r][0], b);
    }
    add_row_sums(group.x, left);
    if (k % 2 == 0 || (k < kDeep / 16 - 1 && !Narrow)) continue;
    const uint half_tile = Narrow ? k / 2 : 0;
    add_group<Columns, Bits>(products, group, stream.scales_of(column, half_tile) + part.column, lane);
    if (k < kDeep / 16 - 1) clear(group);
  }
}

template <bool Narrow, typename X, typename S, int Bits, typename XAt, typename Scratch>
METAL_FUNC Products multiply_streamed(XAt x_at, AffineMatrix<S, Bits> w, Scratch scratch, ProductPart part, uint row0,
                                      uint m, uint index) {
  const uint lane = index % kSimd;
  ProductStream<X, S, Bits, Narrow> stream(x_at, w, scratch, row0, metal::min(m, kM), index);
  Products products;
  fill(products, 0.0f);
  for (uint t = 0; t + 1 < kAhead; ++t) stream.start(t * kDeep);
  stream.start_scales(0);
  stream.finish_scales(0);
  stream.start_scales(kDeep);
  for (uint column = 0; column < w.cols; column += kDeep) {
    machine::copies_wait<kAhead - 2>();
    threadgroup_barrier(metal::mem_flags::mem_threadgroup);
    stream.start(column + (kAhead - 1) * kDeep);
    if (column + kDeep < w.cols) {
      stream.finish_scales(column + kDeep);
      stream.start_scales(column + 2 * kDeep);
    }
    // Parts are whole: a threadgroup's rows of x are those of one.
    if (part.columns > 0) multiply_tile<kPartN>(products, stream, part, column, lane);
  }
  return products;
}

template <typename X, typename S, int Bits, typename XAt, typename Scratch>
Products products_of(XAt x_at, AffineMatrix<S, Bits> w, Scratch scratch, ProductPart part, uint row0, uint m,
                     uint index) {
  if constexpr (metal::is_same_v<X, float>)
    return multiply<X>(x_at, w, scratch, part, row0, m, index);
  else if (w.groupSize == 32)
    return multiply_streamed<true, X>(x_at, w, scratch, part, row0, m, index);
  else
    return multiply_streamed<false, X>(x_at, w, scratch, part, row0, m, index);
}

}  // namespace mlxts
