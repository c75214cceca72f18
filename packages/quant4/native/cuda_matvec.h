// metal_matvec.h for NVIDIA's matrix units. The simdgroups of a threadgroup take turns along the columns of its tile of
// rows of W, each lane with loads of its own that all are under way together; their sums are added at the end. Codes
// that are numbers of the dtype of x, exact as they are, are the left operand of mma.sync, rows of x the columns of the
// right one. Sums in f32 go over the columns of a group, and scale and bias over these sums. x in f32 is three bf16,
// each a column of the operand.
#pragma once
#include "cuda_matvec_operands.h"

namespace mlxts {

constant constexpr uint kBlockUnits = QUANTIZED_MATVEC_BLOCK_UNITS;
constant constexpr uint kColumns = 8;  // of a right operand

METAL_FUNC uint threadgroup_rows(uint) { return kTileRows; }

METAL_FUNC FewOutput output_of(uint lane, uint simdgroup) {
  const uint index = simdgroup * kSimd + lane;
  return {index / kTileRows, index % kTileRows};
}

// How rows of x become columns of right operands.
template <typename X>
struct RightColumns {
  typedef metal::conditional_t<metal::is_same_v<X, half>, PairsF16, PairsBf16> Pairs;
  static constant constexpr uint kParts = 1, kWords = 4;  // words of eight columns of x

  template <int Bits>
  static METAL_FUNC void order(thread uint* pairs, thread const uint* x, uint) {
    order_pairs<Bits>(pairs, x);
  }
};
// Three bf16: what is left of x when the parts before are cut off. Parts are in units of 2^-8 of the one before, so
// that none is below bf16's normal numbers where x is not.
template <>
struct RightColumns<float> {
  typedef PairsBf16 Pairs;
  static constant constexpr uint kParts = 3, kWords = 8;

  template <int Bits>
  static METAL_FUNC void order(thread uint* pairs, thread const uint* x, uint part) {
    uint words[4];
    MLXTS_UNROLL for (uint i = 0; i < 4; ++i) {
      uint two[2];
      MLXTS_UNROLL for (uint e = 0; e < 2; ++e) {
        float rest = as_type<float>(x[2 * i + e]);
        MLXTS_UNROLL for (uint before = 0; before < 2; ++before) if (part > before) rest =
            (rest - as_type<float>(as_type<uint>(rest) & 0xffff0000u)) * 256.0f;
        two[e] = as_type<uint>(rest);
      }
      words[i] = machine::bytes_of(two[0], two[1], 0x7632);
    }
    order_pairs<Bits>(pairs, words);
  }
};

// `Count` neighboring words: at once as far as possible where Wide.
template <uint Count, bool Wide>
METAL_FUNC void bring_words(thread uint* to, device const uchar* from) {
  constexpr uint kAtOnce = !Wide ? 1 : Count % 4 == 0 ? 4 : Count % 2 == 0 ? 2 : 1;
  MLXTS_UNROLL for (uint i = 0; i < Count; i += kAtOnce) {
    if constexpr (kAtOnce == 4) {
      const uint4 four = ((device const uint4*)from)[i / 4];
      MLXTS_UNROLL for (uint e = 0; e < 4; ++e) to[i + e] = four[e];
    } else if constexpr (kAtOnce == 2) {
      const uint2 two = ((device const uint2*)from)[i / 2];
      to[i] = two.x;
      to[i + 1] = two.y;
    } else {
      to[i] = ((device const uint*)from)[i];
    }
  }
}

// How a simdgroup goes through the columns. A unit are columns of one group, of which a lane has `Run` of two rows in
// each of `Tiles` matrices. A right operand has room for kColumns / Width units of x side by side, `Width` columns
// each, so that their sums meet their scales at once; or x has `Operands` right operands. Wide: rows of W and of x
// begin at multiples of 16 bytes.
template <uint RunColumns, uint WidthColumns, uint OperandsOfX, bool WideLoads>
struct Walk {
  static constant constexpr uint kRun = RunColumns, kUnit = 4 * RunColumns, kWidth = WidthColumns;
  static constant constexpr uint kOperands = OperandsOfX, kAtOnce = kColumns / WidthColumns;
  static constant constexpr bool kWide = WideLoads;

  // A unit beside another, or the last one.
  static METAL_FUNC uint unit_at(uint first, uint beside, uint units) {
    return kAtOnce == 1 ? first : metal::min(first + beside, units - 1);
  }
};

// A simdgroup's sums of parts of m rows of x times the rows of W: threadgroup sums [simdgroups][columns][Tiles · 16].
template <typename Walk, typename X, typename S, int Bits, uint Tiles>
void sum_columns(device const X* x, uint m, thread const AffineMatrix<S, Bits> (&w)[Tiles], threadgroup float* to,
                 uint lane, uint simdgroup, uint simdgroups) {
  typedef RightColumns<X> Right;
  typedef typename Right::Pairs Pairs;
  constexpr uint kRun = Walk::kRun, kUnit = Walk::kUnit, kWidth = Walk::kWidth, kOperands = Walk::kOperands;
  constexpr uint kAtOnce = Walk::kAtOnce, kWords = kRun * Bits / 32, kUnitBytes = kUnit * Bits / 8;
  const uint g = lane / 4, j = lane % 4;
  const uint cols = w[0].cols, units = cols / kUnit, shift = metal::ctz(w[0].groupSize / kUnit);
  const uint step = simdgroups * kBlockUnits;

  // What this lane brings: two rows of codes of each matrix, and of each right operand one column of one unit.
  device const uchar* codes[Tiles][2];
  device const S* scales[Tiles][2];
  device const S* biases[Tiles][2];
  MLXTS_UNROLL for (uint t = 0; t < Tiles; ++t) MLXTS_UNROLL for (uint h = 0; h < 2; ++h) {
    const uint row = metal::min(8 * h + g, w[t].rows - 1);
    codes[t][h] = (device const uchar*)w[t].words + ulong(row) * (cols / 8 * Bits) +
                  simdgroup * kBlockUnits * kUnitBytes + j * (kWords * 4);
    scales[t][h] = w[t].scales + row * (units >> shift);
    biases[t][h] = w[t].biases + row * (units >> shift);
  }
  const uint place = g / kWidth;
  uint part[kOperands];
  device const X* left[kOperands];
  MLXTS_UNROLL for (uint n = 0; n < kOperands; ++n) {
    const uint column = g % kWidth + n * kColumns;
    part[n] = Right::kParts > 1 ? uint(column >= m) + uint(column >= 2 * m) : 0;
    left[n] = x + metal::min(column - part[n] * m, m - 1) * cols + j * kRun;
  }
  // Of the sums it has the same rows, and two columns of this unit.
  const uint own = 2 * j / kWidth;

  float sums[Tiles][2][kOperands][2];
  uint words[Tiles][2][kBlockUnits][kWords];
  MLXTS_UNROLL for (uint t = 0; t < Tiles; ++t) MLXTS_UNROLL for (uint h = 0; h < 2; ++h) {
    MLXTS_UNROLL for (uint n = 0; n < kOperands; ++n) sums[t][h][n][0] = sums[t][h][n][1] = 0.0f;
    MLXTS_UNROLL for (uint u = 0; u < kBlockUnits; ++u) if (simdgroup * kBlockUnits + u < units)
        bring_words<kWords, Walk::kWide>(words[t][h][u], codes[t][h] + u * kUnitBytes);
  }
  for (uint block = simdgroup * kBlockUnits; block < units; block += step) {
    MLXTS_UNROLL for (uint t = 0; t < Tiles; ++t) MLXTS_UNROLL for (uint h = 0; h < 2; ++h) codes[t][h] +=
        step * kUnitBytes;
    MLXTS_UNROLL for (uint first = 0; first < kBlockUnits; first += kAtOnce) {
      if (block + first >= units) break;
      uint right[kOperands][kRun / 2];
      MLXTS_UNROLL for (uint n = 0; n < kOperands; ++n) {
        uint raw[kRun / 8 * Right::kWords];
        bring_words<kRun / 8 * Right::kWords, Walk::kWide>(
            raw, (device const uchar*)(left[n] + Walk::unit_at(block + first, place, units) * kUnit));
        MLXTS_UNROLL for (uint run = 0; run < kRun / 8; ++run)
            Right::template order<Bits>(right[n] + 4 * run, raw + run * Right::kWords, part[n]);
      }
      const uint group = Walk::unit_at(block + first, own, units) >> shift;
      S scale[Tiles][2], bias[Tiles][2];
      MLXTS_UNROLL for (uint t = 0; t < Tiles; ++t) MLXTS_UNROLL for (uint h = 0; h < 2; ++h) {
        scale[t][h] = scales[t][h][group];
        bias[t][h] = biases[t][h][group];
      }
      float ones[kOperands][4], products[Tiles][kOperands][4];
      MLXTS_UNROLL for (uint n = 0; n < kOperands; ++n) {
        MLXTS_UNROLL for (uint e = 0; e < 4; ++e) {
          ones[n][e] = 0.0f;
          MLXTS_UNROLL for (uint t = 0; t < Tiles; ++t) products[t][n][e] = 0.0f;
        }
        MLXTS_UNROLL for (uint k = 0; k < kRun / 2; k += 2) Pairs::multiply_add(
            ones[n], Pairs::kOnes, Pairs::kOnes, Pairs::kOnes, Pairs::kOnes, right[n][k], right[n][k + 1]);
      }
      MLXTS_UNROLL for (uint u = first; u < first + kAtOnce; ++u) {
        if (block + u >= units) break;
        MLXTS_UNROLL for (uint t = 0; t < Tiles; ++t) MLXTS_UNROLL for (uint run = 0; run < kRun / 8; ++run) {
          uint low[4], high[4];
          decode<Pairs, Bits>(low, words[t][0][u] + run * (Bits / 4));
          decode<Pairs, Bits>(high, words[t][1][u] + run * (Bits / 4));
          MLXTS_UNROLL for (uint k = 0; k < 4; k += 2) MLXTS_UNROLL for (uint n = 0; n < kOperands; ++n) {
            const bool mine = kAtOnce == 1 || place == u - first;
            Pairs::multiply_add(products[t][n], low[k], high[k], low[k + 1], high[k + 1],
                                mine ? right[n][4 * run + k] : 0, mine ? right[n][4 * run + k + 1] : 0);
          }
        }
        // These codes are used: the next block's begin their way.
        if (block + step + u < units)
          MLXTS_UNROLL for (uint t = 0; t < Tiles; ++t) MLXTS_UNROLL for (uint h = 0; h < 2; ++h)
              bring_words<kWords, Walk::kWide>(words[t][h][u], codes[t][h] + u * kUnitBytes);
      }
      if (kAtOnce == 1 || block + first + own < units) {
        MLXTS_UNROLL for (uint t = 0; t < Tiles; ++t) MLXTS_UNROLL for (uint h = 0; h < 2; ++h) {
          const float factor = float(scale[t][h]), offset = centered<Bits>(factor, float(bias[t][h]));
          MLXTS_UNROLL for (uint n = 0; n < kOperands; ++n) MLXTS_UNROLL for (uint e = 0; e < 2; ++e) sums[t][h][n][e] =
              metal::fma(factor, products[t][n][2 * h + e], metal::fma(offset, ones[n][e], sums[t][h][n][e]));
        }
      }
    }
  }
  MLXTS_UNROLL for (uint t = 0; t < Tiles; ++t) MLXTS_UNROLL for (uint h = 0; h < 2; ++h)
      MLXTS_UNROLL for (uint n = 0; n < kOperands; ++n) MLXTS_UNROLL for (uint e = 0; e < 2; ++e) {
    float sum = sums[t][h][n][e];
    if (kAtOnce >= 2) sum += metal::simd_shuffle_xor(sum, ushort(2));
    if (kAtOnce >= 4) sum += metal::simd_shuffle_xor(sum, ushort(1));
    const uint column = n * kColumns + (2 * j + e) % kWidth;
    if (own == 0) to[((simdgroup * kOperands * kWidth + column) * Tiles + t) * kTileRows + 8 * h + g] = sum;
  }
}

// A thread's output of each of the matrices, if there is one, by columns of right operands that `Walk` has.
template <typename Walk, typename X, typename S, int Bits, uint Tiles>
METAL_FUNC void products_by(thread float (&products)[Tiles], device const X* x, uint m,
                            thread const AffineMatrix<S, Bits> (&w)[Tiles], uint lane, uint simdgroup) {
  threadgroup float* sums = (threadgroup float*)machine::threadgroup_memory();
  const uint simdgroups = simdgroups_of_threadgroup();
  sum_columns<Walk>(x, m, w, sums, lane, simdgroup, simdgroups);
  threadgroup_barrier(metal::mem_flags::mem_threadgroup);
  const FewOutput at = output_of(lane, simdgroup);
  if (at.i >= m) return;
  MLXTS_UNROLL for (uint t = 0; t < Tiles; ++t) {
    products[t] = 0.0f;
    MLXTS_UNROLL for (uint part = RightColumns<X>::kParts; part-- > 0;) {
      threadgroup const float* from = sums + ((part * m + at.i) * Tiles + t) * kTileRows + at.r;
      float sum = 0.0f;
#pragma unroll 4
      for (uint s = 0; s < simdgroups; ++s) sum += from[s * (Walk::kOperands * Walk::kWidth * Tiles * kTileRows)];
      products[t] = products[t] * (1.0f / 256) + sum;
    }
  }
}

template <typename X, typename S, int Bits, uint Tiles>
METAL_FUNC void products_of(thread float (&products)[Tiles], device const X* x, uint m,
                            thread const AffineMatrix<S, Bits> (&w)[Tiles], uint lane, uint simdgroup) {
  constexpr uint kParts = RightColumns<X>::kParts, kOperands = (kParts * QUANTIZED_MATVEC_MOST_M + 7) / kColumns;
  const uint columns = kParts * m;
  ulong addresses = ulong(x);
  MLXTS_UNROLL for (uint t = 0; t < Tiles; ++t) addresses |= ulong(w[t].words);
  const bool aligned = (addresses & 15) == 0;
  wait_for_kernels();
  if (w[0].groupSize < 64)
    products_by<Walk<8, 8, kOperands, false>>(products, x, m, w, lane, simdgroup);
  else if (!aligned)
    products_by<Walk<16, 8, kOperands, false>>(products, x, m, w, lane, simdgroup);
  else if (kParts == 1 && columns <= 2)
    products_by<Walk<16, 2, 1, true>>(products, x, m, w, lane, simdgroup);
  else if (columns <= 4)
    products_by<Walk<16, 4, 1, true>>(products, x, m, w, lane, simdgroup);
  else
    products_by<Walk<16, 8, kOperands, true>>(products, x, m, w, lane, simdgroup);
}

// The product for a thread's output, if there is one; w begins with the first row of the threadgroup. All its threads
// call this.
template <typename X, typename S, int Bits>
METAL_FUNC float product_of(device const X* x, uint m, AffineMatrix<S, Bits> w, uint lane, uint simdgroup) {
  const AffineMatrix<S, Bits> one[1] = {w};
  float product[1];
  products_of(product, x, m, one, lane, simdgroup);
  return product[0];
}

// The same of two matrices.
template <typename X, typename S, int Bits>
METAL_FUNC TwoProducts products_of(device const X* x, uint m, AffineMatrix<S, Bits> a, AffineMatrix<S, Bits> b,
                                   uint lane, uint simdgroup) {
  const AffineMatrix<S, Bits> two[2] = {a, b};
  float products[2];
  products_of(products, x, m, two, lane, simdgroup);
  return {products[0], products[1]};
}

}  // namespace mlxts
