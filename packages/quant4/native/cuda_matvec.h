// metal_matvec.h for NVIDIA's matrix units. A threadgroup has a tile of rows of W and copies a chunk of their columns at
// once, so that all of it is under way together; its simdgroups take turns along the columns, and their sums are added
// at the end. A simdgroup multiplies rows of x, the left operand, by codes that are numbers of the dtype of x, exact as
// they are: mma.sync sums in f32 over the columns of a group, and scale and bias go over these sums. x in f32 is three
// bf16, each a row of the operand.
#pragma once
#include "product_metal.h"
#include "quantized_matvec.params.h"

namespace mlxts {

constant constexpr uint kTileRows = QUANTIZED_MATVEC_TILE_ROWS, kSimdgroups = QUANTIZED_MATVEC_TILE_SIMDGROUPS;
constant constexpr uint kThreads = kSimdgroups * kSimd;
constant constexpr uint kTiles = kTileRows / 8;  // right operands
constant constexpr uint kMostRows = 16;          // of a left operand
constant constexpr uint kUnit = 64;              // columns that a simdgroup takes in turn
// Of threadgroup memory: bytes of codes of a row; bytes behind rows of codes and of x, and numbers of a group of scales,
// such that what lanes read together lies in different banks.
constant constexpr uint kChunkBytes = QUANTIZED_MATVEC_CHUNK_BYTES, kPadding = QUANTIZED_MATVEC_PADDING;
constant constexpr uint kScaleStride = QUANTIZED_MATVEC_SCALE_STRIDE;

METAL_FUNC uint threadgroup_rows(uint) { return kTileRows; }

METAL_FUNC FewOutput output_of(uint lane, uint simdgroup) {
  const uint index = simdgroup * kSimd + lane;
  return {index / kTileRows, index % kTileRows};
}

// The numbers of an operand, two in 32 bits. A code is put into the digits of a number whose last digit counts 1.
struct PairsF16 {
  static constant constexpr uint kOnes = 0x3c003c00, kSixteens = 0x4c004c00, kBase = 0x64006400;  // 1024
  static constant constexpr uint kMinusBase = 0xe400e400, kMinusBase8 = 0xe408e408;               // −1024, −1032
  static constant constexpr uint kMinus16Base128 = 0xf408f408;                                    // −(16·1024 + 128)
  static METAL_FUNC uint fma(uint a, uint b, uint c) { return machine::f16_fma_pair(a, b, c); }
  static METAL_FUNC void multiply_add(thread float (&sums)[4], thread const uint (&a)[4], uint b0, uint b1) {
    machine::mma_f16_k16(sums, a[0], a[1], a[2], a[3], b0, b1);
  }
};
struct PairsBf16 {
  static constant constexpr uint kOnes = 0x3f803f80, kSixteens = 0x41804180, kBase = 0x43004300;  // 128
  static constant constexpr uint kMinusBase = 0xc300c300, kMinusBase8 = 0xc308c308;               // −128, −136
  static constant constexpr uint kMinus16Base128 = 0xc508c508;                                    // −(16·128 + 128)
  static METAL_FUNC uint fma(uint a, uint b, uint c) { return machine::bf16_fma_pair(a, b, c); }
  static METAL_FUNC void multiply_add(thread float (&sums)[4], thread const uint (&a)[4], uint b0, uint b1) {
    machine::mma_bf16_k16(sums, a[0], a[1], a[2], a[3], b0, b1);
  }
};

// Of eight neighboring columns of a row of x, the pairs in the order in which pairs of codes leave their words: codes of 4
// bits four columns apart, those of 8 bits two.
template <int Bits>
METAL_FUNC void order_pairs(thread uint (&pairs)[4], thread const uint (&x)[4]) {
  constexpr uint kLow = 0x5410, kHigh = 0x7632, second = Bits == 4 ? 2 : 1, next = Bits == 4 ? 1 : 2;
  pairs[0] = machine::bytes_of(x[0], x[second], kLow);
  pairs[1] = machine::bytes_of(x[0], x[second], kHigh);
  pairs[2] = machine::bytes_of(x[next], x[next + second], kLow);
  pairs[3] = machine::bytes_of(x[next], x[next + second], kHigh);
}

// How x becomes rows of a left operand.
template <typename X>
struct LeftRows {
  typedef metal::conditional_t<metal::is_same_v<X, half>, PairsF16, PairsBf16> Pairs;
  static constant constexpr uint kParts = 1, kWords = 4;  // words of eight columns

  template <int Bits>
  static METAL_FUNC void order(thread uint (&pairs)[4], thread const uint (&x)[4], uint) {
    order_pairs<Bits>(pairs, x);
  }
};
// Three bf16: what is left of x when the parts before are cut off. Parts are in units of 2^-8 of the one before, so that
// none is below bf16's normal numbers where x is not.
template <>
struct LeftRows<float> {
  typedef PairsBf16 Pairs;
  static constant constexpr uint kParts = 3, kWords = 8;

  template <int Bits>
  static METAL_FUNC void order(thread uint (&pairs)[4], thread const uint (&x)[8], uint part) {
    uint words[4];
    MLXTS_UNROLL for (uint i = 0; i < 4; ++i) {
      uint two[2];
      MLXTS_UNROLL for (uint e = 0; e < 2; ++e) {
        float rest = as_type<float>(x[2 * i + e]);
        MLXTS_UNROLL for (uint before = 0; before < 2; ++before)
          if (part > before) rest = (rest - as_type<float>(as_type<uint>(rest) & 0xffff0000u)) * 256.0f;
        two[e] = as_type<uint>(rest);
      }
      words[i] = machine::bytes_of(two[0], two[1], 0x7632);
    }
    order_pairs<Bits>(pairs, words);
  }
};

// The last four bits of each half of a word in the last digits of two numbers.
template <typename Pairs>
METAL_FUNC uint digits_of(uint word) {
  return (word & 0x000f000fu) | Pairs::kBase;
}

// sums += rows of x · codes of eight columns of a lane, and ones += rows of x · 1; `x` has the rows 8 h + lane / 4.
template <typename Pairs, int Bits, uint Halves>
METAL_FUNC void multiply_run(thread float (&sums)[kTiles][4], thread float (&ones)[4],
                             thread const uint (&x)[Halves][4], thread const uint (&codes)[kTiles][Bits / 4]) {
  MLXTS_UNROLL for (uint q = 0; q < 2; ++q) {
    const uint left[4] = {x[0][2 * q], Halves > 1 ? x[Halves - 1][2 * q] : 0, x[0][2 * q + 1],
                          Halves > 1 ? x[Halves - 1][2 * q + 1] : 0};
    Pairs::multiply_add(ones, left, Pairs::kOnes, Pairs::kOnes);
    MLXTS_UNROLL for (uint tile = 0; tile < kTiles; ++tile) {
      if (Bits == 4) {
        const uint word = codes[tile][0] >> (8 * q);
        Pairs::multiply_add(sums[tile], left, Pairs::fma(digits_of<Pairs>(word), Pairs::kOnes, Pairs::kMinusBase8),
                            Pairs::fma(digits_of<Pairs>(word >> 4), Pairs::kOnes, Pairs::kMinusBase8));
      } else {
        // q − 128 is the low digit and sixteen times the high one less eight.
        const uint word = codes[tile][q % (Bits / 4)];
        Pairs::multiply_add(sums[tile], left, Pairs::fma(digits_of<Pairs>(word), Pairs::kOnes, Pairs::kMinusBase),
                            Pairs::fma(digits_of<Pairs>(word >> 8), Pairs::kOnes, Pairs::kMinusBase));
        Pairs::multiply_add(sums[tile], left,
                            Pairs::fma(digits_of<Pairs>(word >> 4), Pairs::kSixteens, Pairs::kMinus16Base128),
                            Pairs::fma(digits_of<Pairs>(word >> 12), Pairs::kSixteens, Pairs::kMinus16Base128));
      }
    }
  }
}

// Columns of a chunk.
template <int Bits>
constexpr uint chunk_columns() {
  return kChunkBytes * 8 / Bits;
}

// Threadgroup memory.
template <typename X, int Bits>
struct FewMemory {
  threadgroup uchar* codes;    // [kTileRows][kChunkBytes + kPadding]
  threadgroup uchar* x;        // [m][x_stride]
  threadgroup float2* scales;  // scale and offset: [groups of a chunk][kScaleStride / 2], of the rows of W
  threadgroup float* sums;     // [kSimdgroups][kMostRows][kTileRows]
  uint x_stride;               // bytes

  METAL_FUNC FewMemory(uint m, uint cols, uint groupSize) {
    const uint columns = metal::min(cols, chunk_columns<4>());
    x_stride = columns * sizeof(X) + kPadding / 2;
    codes = (threadgroup uchar*)machine::threadgroup_memory();
    sums = (threadgroup float*)(codes + kTileRows * (kChunkBytes + kPadding));
    scales = (threadgroup float2*)(sums + kSimdgroups * kMostRows * kTileRows);
    x = (threadgroup uchar*)(scales + (columns >> metal::ctz(groupSize)) * (kScaleStride / 2));
  }
};

// Starts copies of `bytes` bytes of each of `rows` rows, all threads together: 16 bytes at a time where Wide, otherwise
// 4. Rows that do not exist are the last one.
template <bool Wide>
METAL_FUNC void copy_rows(threadgroup uchar* to, uint toStride, device const uchar* from, ulong fromStride, uint rows,
                          uint lastRow, uint bytes, uint index) {
  constexpr uint kBytes = Wide ? 16 : 4;
  const uint pieces = bytes / kBytes, across = kThreads / kTileRows;
  for (uint row = index / across; row < rows; row += kTileRows) {
    device const uchar* first = from + metal::min(row, lastRow) * fromStride;
    for (uint piece = index % across; piece < pieces; piece += across)
      machine::copy_start<kBytes>(to + row * toStride + piece * kBytes, first + piece * kBytes);
  }
}

// Scales and offsets of `some` groups from group0 on, for all rows.
template <typename S, int Bits>
METAL_FUNC void bring_scales(threadgroup float2* to, thread const AffineMatrix<S, Bits>& w, uint group0, uint some,
                             uint groups, uint index) {
  constexpr uint kAcross = kThreads / kTileRows, kAtOnce = 4;
  const uint row = index / kAcross;
  const ulong first = ulong(metal::min(row, w.rows - 1)) * groups + group0;
  for (uint begin = index % kAcross; begin < some; begin += kAcross * kAtOnce) {
    S scale[kAtOnce], bias[kAtOnce];
    MLXTS_UNROLL for (uint i = 0; i < kAtOnce; ++i) {
      const ulong at = first + metal::min(begin + i * kAcross, some - 1);
      scale[i] = w.scales[at];
      bias[i] = w.biases[at];
    }
    MLXTS_UNROLL for (uint i = 0; i < kAtOnce; ++i) {
      const uint group = begin + i * kAcross;
      if (group < some)
        to[group * (kScaleStride / 2) + row] = float2(float(scale[i]), centered<Bits>(float(scale[i]), float(bias[i])));
    }
  }
}

// sums += scale · products + offset · ones, of the rows of W that a lane has; both begin anew.
template <uint Halves>
METAL_FUNC void finish_group(thread float (&sums)[kTiles][4], thread float (&products)[kTiles][4],
                             thread float (&ones)[4], threadgroup const float2* scales) {
  MLXTS_UNROLL for (uint tile = 0; tile < kTiles; ++tile) {
    const float4 two = *(threadgroup const float4*)(scales + 8 * tile);  // of a row and the next
    MLXTS_UNROLL for (uint h = 0; h < Halves; ++h) {
      thread float& first = sums[tile][2 * h];
      thread float& second = sums[tile][2 * h + 1];
      first = metal::fma(two.x, products[tile][2 * h], metal::fma(two.y, ones[2 * h], first));
      second = metal::fma(two.z, products[tile][2 * h + 1], metal::fma(two.w, ones[2 * h + 1], second));
    }
    MLXTS_UNROLL for (uint e = 0; e < 4; ++e) products[tile][e] = 0.0f;
  }
  MLXTS_UNROLL for (uint e = 0; e < 4; ++e) ones[e] = 0.0f;
}

// The simdgroups' sums of parts of m rows of x times the rows of W. Narrow: groups have 32 columns. Halves: of the left
// operand that have rows.
template <typename X, typename S, int Bits, bool Narrow, uint Halves>
void sum_columns(device const X* x, uint m, AffineMatrix<S, Bits> w, FewMemory<X, Bits> memory, uint lane,
                 uint simdgroup) {
  typedef LeftRows<X> Left;
  constexpr uint kWords = Bits / 4;  // of eight columns
  const uint g = lane / 4, j = lane % 4, index = simdgroup * kSimd + lane;
  const uint shift = metal::ctz(w.groupSize), groups = w.cols >> shift;
  // A lane has sixteen columns of a unit, or eight in each of its groups.
  constexpr uint kNextRun = Narrow ? 32 : 8;
  const uint first_run = (Narrow ? 8 : 16) * j;
  const ulong row_bytes = w.cols / 8 * Bits;
  const bool wide = ((ulong(w.words) | ulong(x)) & 15) == 0;
  threadgroup const uchar* rows_of_x[Halves];
  uint part[Halves];
  bool exists[Halves];
  MLXTS_UNROLL for (uint h = 0; h < Halves; ++h) {
    part[h] = Left::kParts > 1 ? (g + 8 * h) / m : 0;
    rows_of_x[h] = memory.x + (g + 8 * h - part[h] * m) * memory.x_stride;
    exists[h] = g + 8 * h < Left::kParts * m;
  }
  float sums[kTiles][4], products[kTiles][4], ones[4];
  MLXTS_UNROLL for (uint e = 0; e < 4; ++e) {
    ones[e] = 0.0f;
    MLXTS_UNROLL for (uint tile = 0; tile < kTiles; ++tile) sums[tile][e] = products[tile][e] = 0.0f;
  }
  for (uint column0 = 0; column0 < w.cols; column0 += chunk_columns<Bits>()) {
    const uint columns = metal::min(w.cols - column0, chunk_columns<Bits>());
    threadgroup_barrier(metal::mem_flags::mem_threadgroup);  // nobody reads the chunk before
    device const uchar* codes = (device const uchar*)w.words + column0 / 8 * Bits;
    device const uchar* left = (device const uchar*)(x + column0);
    if (wide) {
      copy_rows<true>(memory.codes, kChunkBytes + kPadding, codes, row_bytes, kTileRows, w.rows - 1, columns / 8 * Bits,
                      index);
      copy_rows<true>(memory.x, memory.x_stride, left, w.cols * sizeof(X), m, m - 1, columns * sizeof(X), index);
    } else {
      copy_rows<false>(memory.codes, kChunkBytes + kPadding, codes, row_bytes, kTileRows, w.rows - 1, columns / 8 * Bits,
                       index);
      copy_rows<false>(memory.x, memory.x_stride, left, w.cols * sizeof(X), m, m - 1, columns * sizeof(X), index);
    }
    machine::copies_end();
    bring_scales(memory.scales, w, column0 >> shift, columns >> shift, groups, index);
    machine::copies_wait<0>();
    threadgroup_barrier(metal::mem_flags::mem_threadgroup);
    for (uint unit = simdgroup * kUnit; unit < columns; unit += kSimdgroups * kUnit) {
      MLXTS_UNROLL for (uint run = 0; run < 2; ++run) {
        const uint own = unit + first_run + run * kNextRun;
        if (Narrow && unit + run * kNextRun >= columns) continue;
        uint words[kTiles][kWords], rows[Halves][4];
        MLXTS_UNROLL for (uint tile = 0; tile < kTiles; ++tile) {
          threadgroup const uint* at = (threadgroup const uint*)(memory.codes +
                                                                (8 * tile + g) * (kChunkBytes + kPadding) + own / 8 * Bits);
          MLXTS_UNROLL for (uint i = 0; i < kWords; ++i) words[tile][i] = at[i];
        }
        MLXTS_UNROLL for (uint h = 0; h < Halves; ++h) {
          uint raw[Left::kWords];
          MLXTS_UNROLL for (uint i = 0; i < Left::kWords; i += 4) {
            uint4 four = uint4(0);
            if (exists[h]) four = *(threadgroup const uint4*)(rows_of_x[h] + own * sizeof(X) + 4 * i);
            MLXTS_UNROLL for (uint e = 0; e < 4; ++e) raw[i + e] = four[e];
          }
          Left::template order<Bits>(rows[h], raw, part[h]);
        }
        multiply_run<typename Left::Pairs, Bits>(products, ones, rows, words);
        if (!Narrow && run == 0) continue;
        const uint group = (unit + (Narrow ? run * kNextRun : 0)) >> shift;
        finish_group<Halves>(sums, products, ones, memory.scales + group * (kScaleStride / 2) + 2 * j);
      }
    }
  }
  MLXTS_UNROLL for (uint h = 0; h < Halves; ++h) {
    if (!exists[h]) continue;
    threadgroup float* to = memory.sums + (simdgroup * kMostRows + 8 * h + g) * kTileRows + 2 * j;
    MLXTS_UNROLL for (uint tile = 0; tile < kTiles; ++tile)
        *(threadgroup float2*)(to + 8 * tile) = float2(sums[tile][2 * h], sums[tile][2 * h + 1]);
  }
}

// The product for a thread's output, if there is one; w begins with the first row of the threadgroup. All its threads
// call this.
template <typename X, typename S, int Bits>
METAL_FUNC float product_of(device const X* x, uint m, AffineMatrix<S, Bits> w, uint lane, uint simdgroup) {
  const FewMemory<X, Bits> memory(m, w.cols, w.groupSize);
  const FewOutput at = output_of(lane, simdgroup);
  constexpr uint kParts = LeftRows<X>::kParts, kMostM = kMostRows / kParts;
  float product = 0.0f;
  for (uint m0 = 0; m0 < m; m0 += kMostM) {
    const uint some = metal::min(m - m0, kMostM);
    device const X* from = x + ulong(m0) * w.cols;
    constexpr uint kHalves = kParts == 1 ? 1 : 2;
    if (w.groupSize < kUnit)
      sum_columns<X, S, Bits, true, kHalves>(from, some, w, memory, lane, simdgroup);
    else if (kParts * some <= 8)
      sum_columns<X, S, Bits, false, 1>(from, some, w, memory, lane, simdgroup);
    else
      sum_columns<X, S, Bits, false, kHalves>(from, some, w, memory, lane, simdgroup);
    threadgroup_barrier(metal::mem_flags::mem_threadgroup);
    if (at.i >= m0 && at.i < m0 + some) {
      for (uint part = kParts; part-- > 0;) {
        float sum = 0.0f;
        for (uint s = 0; s < kSimdgroups; ++s)
          sum += memory.sums[(s * kMostRows + part * some + at.i - m0) * kTileRows + at.r];
        product = product * (1.0f / 256) + sum;
      }
    }
  }
  return product;
}

}  // namespace mlxts
