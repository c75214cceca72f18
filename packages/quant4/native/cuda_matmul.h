// metal_matmul.h in a CUDA translation. With x of 16 bits, codes never become a tile: each lane takes those of its
// operands from the words, which lie in threadgroup memory as in W. Tiles are brought several ahead.
#pragma once
#include "cuda_warpgroups.h"
#include "matmul_metal.h"

namespace mlxts {

constant constexpr uint kAhead = QUANTIZED_MATMUL_TILES;  // tiles in threadgroup memory
constant constexpr uint kDeep = 64;                       // columns of a tile

// Two and two centered codes as the right operand of a product with columns 16 k … of a tile: pair j and pair j + 4 of
// the eight there, for lane 4 g + j.
template <typename X, int Bits>
struct RightCodes;
METAL_FUNC uint centered4(uint codes, bfloat) {  // 128 + q, minus 136
  return machine::bf16_fma_pair(machine::and_or(codes, 0x000f000fu, 0x43004300u), 0x3f803f80u, 0xc308c308u);
}
METAL_FUNC uint centered4(uint codes, half) {  // 1024 + q, minus 1032
  return machine::f16_subtract_pair(machine::and_or(codes, 0x000f000fu, 0x64006400u), 0x64086408u);
}
template <typename X>
struct RightCodes<X, 4> {
  // `words` of a row of a tile.
  METAL_FUNC static void load(thread uint (&words)[8], threadgroup const uint* row, uint) {
    const uint4 low = *(threadgroup const uint4*)row, high = *(threadgroup const uint4*)(row + 4);
    MLXTS_UNROLL for (uint i = 0; i < 4; ++i) words[i] = low[i], words[i + 4] = high[i];
  }
  // The two codes of a byte go to the halves of a register by a product: its bits once more, 12 places further.
  METAL_FUNC static void pairs(thread uint (&b)[2], thread const uint (&words)[8], uint k, uint j) {
    MLXTS_UNROLL for (uint i = 0; i < 2; ++i) b[i] =
        centered4(machine::bytes_of(words[2 * k + i], 0, 0x4440u + j) * 0x1001u, X());
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
  static constant constexpr uint kHalves = Narrow ? 2 : 1;
  static_assert(kM * kXRow % kThreads == 0 && kN * kWRow % kThreads == 0 && kN == kThreads,
                "every thread brings as much");
  static_assert(kM / 16 == kThreads / kSimd, "every simdgroup adds up sixteen rows of x");

  AffineMatrix<S, Bits> w;
  threadgroup X* x_tiles;
  threadgroup uint* w_tiles;
  // Of two tiles, and of each half: scales of two rows of W, then their offsets; sums of rows 8 r + g of x, at [g][r].
  threadgroup float *scales, *sums;
  device const X* x_from[kXOwn];
  device const uint* w_from[kWOwn];
  device const S *scale_from, *bias_from;
  S held[kHalves][2];
  uint index;

  template <typename XAt, typename Scratch>
  METAL_FUNC ProductStream(XAt x_at, AffineMatrix<S, Bits> w, Scratch scratch, uint row0, uint m, uint index)
      : w(w),
        x_tiles((threadgroup X*)scratch.xTiles),
        w_tiles((threadgroup uint*)scratch.wTiles),
        scales(scratch.scales),
        sums(scratch.scales + 2 * kHalves * 2 * kN),
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
    const ulong group = ulong(metal::min(row0 + index, w.rows - 1)) * (w.cols >> metal::ctz(w.groupSize));
    scale_from = w.scales + group;
    bias_from = w.biases + group;
  }

  // The tile whose first column is `column`; columns beyond the last are zeros.
  METAL_FUNC void start(uint column) {
    // The pieces of a thread begin at the same column.
    const uint place = column / kDeep % kAhead, x_column = index % kXRow * 8, w_column = index % kWRow * (128 / Bits);
    const uint x_bytes = column + x_column < w.cols ? 16 : 0, w_bytes = column + w_column < w.cols ? 16 : 0;
    threadgroup X* x_to = x_tiles + (place * kM + index / kXRow) * kXStride + x_column;
    threadgroup uint* w_to = w_tiles + (place * kN + index / kWRow) * kWStride + index % kWRow * 4;
    MLXTS_UNROLL for (uint i = 0; i < kXOwn; ++i)
        machine::copy_start<16>(x_to + i * (kThreads / kXRow) * kXStride, x_from[i] + (x_bytes ? column : 0), x_bytes);
    MLXTS_UNROLL for (uint i = 0; i < kWOwn; ++i) machine::copy_start<16>(
        w_to + i * (kThreads / kWRow) * kWStride, w_from[i] + (w_bytes ? column / 32 * Bits : 0), w_bytes);
    machine::copies_end();
  }

  // Scales and biases of a thread's own row of W: on their way for the tile at `column`, and stored for it.
  METAL_FUNC void start_scales(uint column) {
    const uint shift = metal::ctz(w.groupSize), last = w.cols / w.groupSize - 1;
    MLXTS_UNROLL for (uint h = 0; h < kHalves; ++h) {
      const uint group = metal::min((column >> shift) + h, last);
      held[h][0] = scale_from[group];
      held[h][1] = bias_from[group];
    }
  }
  METAL_FUNC void finish_scales(uint column) {
    MLXTS_UNROLL for (uint h = 0; h < kHalves; ++h) {
      threadgroup float* to = scales + (column / kDeep % 2 * kHalves + h) * 2 * kN + index / 2 * 4 + index % 2;
      to[0] = float(held[h][0]);
      to[2] = centered<Bits>(float(held[h][0]), float(held[h][1]));
    }
  }

  // Adds up sixteen rows of x in the tile at `column`.
  METAL_FUNC void add_rows(uint column, uint simdgroup, uint lane) {
    TileLeft<X, 16, kDeep> own;
    load(own, x_row(column, 16 * simdgroup), kXStride);
    MLXTS_UNROLL for (uint h = 0; h < kHalves; ++h) {
      RowSums<X, 16> total;
      clear(total);
      MLXTS_UNROLL for (uint k = 0; k < kDeep / 16 / kHalves; ++k)
          add_row_sums(total, columns_of(own, h * (kDeep / 16 / kHalves) + k));
      if (lane % 4 == 0)
        *(threadgroup float2*)(sums_of(column, h) + lane / 4 * (kM / 8) + 2 * simdgroup) =
            float2(total.total(0), total.total(1));
    }
  }

  METAL_FUNC threadgroup const X* x_row(uint column, uint row) const {
    return x_tiles + (column / kDeep % kAhead * kM + row) * kXStride;
  }
  METAL_FUNC threadgroup const uint* w_row(uint column, uint row) const {
    return w_tiles + (column / kDeep % kAhead * kN + row) * kWStride;
  }
  METAL_FUNC threadgroup const float* scales_of(uint column, uint half_tile) const {
    return scales + (column / kDeep % 2 * kHalves + half_tile) * 2 * kN;
  }
  METAL_FUNC threadgroup float* sums_of(uint column, uint half_tile) const {
    return sums + (column / kDeep % 2 * kHalves + half_tile) * kM;
  }
};

// Adds the products of the tile at `column`: of eight columns of the outputs after another, so that the scales of some
// meet their sums while the next are multiplied. products += scale·Σqx + offset·Σx for each group.
template <typename X, typename S, int Bits, bool Narrow>
METAL_FUNC void multiply_tile(thread Products& products, thread const ProductStream<X, S, Bits, Narrow>& stream,
                              ProductPart part, uint column, uint lane) {
  typedef RightCodes<X, Bits> Right;
  constexpr uint kHalves = Narrow ? 2 : 1, kSteps = kDeep / 16 / kHalves;
  threadgroup const uint* w = stream.w_row(column, part.column + lane / 4);
  TileLeft<X, kPartM, kDeep> left;
  load(left, stream.x_row(column, part.row), stream.kXStride);
  float4 x[kHalves][kPartM / 32];
  MLXTS_UNROLL for (uint h = 0; h < kHalves; ++h) MLXTS_UNROLL for (uint r = 0; r < kPartM / 32; ++r) x[h][r] =
      *(threadgroup const float4*)(stream.sums_of(column, h) + lane / 4 * (kM / 8) + 4 * r);
  MLXTS_UNROLL for (uint c = 0; c < kPartN / 8; ++c) {
    uint words[8];
    Right::load(words, w + c * 8 * stream.kWStride, lane % 4);
    MLXTS_UNROLL for (uint h = 0; h < kHalves; ++h) {
      const float4 scale =
          *(threadgroup const float4*)(stream.scales_of(column, h) + 2 * (part.column + 8 * c + matrix_column(lane)));
      float sums[kPartM / 16][4] = {};
      MLXTS_UNROLL for (uint k = 0; k < kSteps; ++k) {
        uint b[2];
        Right::pairs(b, words, h * kSteps + k, lane % 4);
        MLXTS_UNROLL for (uint r = 0; r < kPartM / 16; ++r)
            Pairs<X>::multiply_add(sums[r], left.blocks[r][h * kSteps + k], b);
      }
      MLXTS_UNROLL for (uint r = 0; r < kPartM / 8; ++r) MLXTS_UNROLL for (uint e = 0; e < 2; ++e) {
        thread float& sum = products.at(r, c, e);
        sum = metal::fma(scale[e], sums[r / 2][r % 2 * 2 + e], metal::fma(scale[e + 2], x[h][r / 4][r % 4], sum));
      }
    }
  }
}

template <bool Narrow, typename X, typename S, int Bits, typename XAt, typename Scratch>
METAL_FUNC Products multiply_streamed(XAt x_at, AffineMatrix<S, Bits> w, Scratch scratch, ProductPart part, uint row0,
                                      uint m, uint index) {
  const uint lane = index % kSimd, simdgroup = index / kSimd;
  ProductStream<X, S, Bits, Narrow> stream(x_at, w, scratch, row0, metal::min(m, kM), index);
  Products products;
  fill(products, 0.0f);
  MLXTS_UNROLL for (uint t = 0; t + 1 < kAhead; ++t) stream.start(t * kDeep);
  stream.start_scales(0);
  stream.finish_scales(0);
  stream.start_scales(kDeep);
  machine::copies_wait<kAhead - 2>();
  threadgroup_barrier(metal::mem_flags::mem_threadgroup);
  stream.add_rows(0, simdgroup, lane);
  // No question interrupts a tile, so that what it waits for goes on beside its products: the tiles behind the last are
  // zeros, and parts without columns are multiplied, too.
  for (uint column = 0; column < w.cols; column += kDeep) {
    machine::copies_wait<kAhead - 3>();
    threadgroup_barrier(metal::mem_flags::mem_threadgroup);
    stream.start(column + (kAhead - 1) * kDeep);
    multiply_tile(products, stream, part, column, lane);
    stream.add_rows(column + kDeep, simdgroup, lane);
    stream.finish_scales(column + kDeep);
    stream.start_scales(column + 2 * kDeep);
  }
  return products;
}

template <typename X, typename S, int Bits, typename XAt, typename Scratch>
Products products_of(XAt x_at, AffineMatrix<S, Bits> w, Scratch scratch, ProductPart part, uint row0, uint m,
                     uint index) {
  if constexpr (!metal::is_same_v<X, float>) {
    // All rows are whole pieces of 16 bytes.
    if (((ulong(x_at(0)) | ulong(w.words)) & 15) == 0) {
      if (w.groupSize == 32) return multiply_streamed<true, X>(x_at, w, scratch, part, row0, m, index);
      return multiply_streamed<false, X>(x_at, w, scratch, part, row0, m, index);
    }
  }
  return multiply<X>(x_at, w, scratch, part, row0, m, index);
}

}  // namespace mlxts
