// Codes and x as operands of NVIDIA's matrix units: numbers of 16 bits, two in a word, in the order in which codes leave
// theirs.
#pragma once
#include "product_metal.h"
#include "quantized_matvec.params.h"

namespace mlxts {

constant constexpr uint kTileRows = QUANTIZED_MATVEC_TILE_ROWS;  // of a left operand
static_assert(kTileRows == 16, "a lane has two rows of a left operand");

METAL_FUNC uint simdgroups_of_threadgroup() { return machine::threads().x / kSimd; }

// The numbers of an operand, two in 32 bits. A digit is put where the last bits of a number count 1.
struct PairsF16 {
  static constant constexpr uint kOnes = 0x3c003c00, kSixteens = 0x4c004c00, kBase = 0x64006400;  // 1024
  static constant constexpr uint kSixteenths = 0x2c002c00, kMinus72 = 0xd480d480;                 // −(1024 / 16 + 8)
  static constant constexpr uint kMinusBase8 = 0xe408e408;                                        // −1032
  static constant constexpr uint kMinus17Base128 = 0xf448f448;                                    // −(17·1024 + 128)
  static METAL_FUNC uint fma(uint a, uint b, uint c) { return machine::f16_fma_pair(a, b, c); }
  static METAL_FUNC void multiply_add(thread float (&sums)[4], uint a0, uint a1, uint a2, uint a3, uint b0, uint b1) {
    machine::mma_f16_k16(sums, a0, a1, a2, a3, b0, b1);
  }
};
struct PairsBf16 {
  static constant constexpr uint kOnes = 0x3f803f80, kSixteens = 0x41804180, kBase = 0x43004300;  // 128
  static constant constexpr uint kMinusBase8 = 0xc308c308;                                        // −136
  static constant constexpr uint kMinus17Base128 = 0xc510c510;                                    // −(17·128 + 128)
  static METAL_FUNC uint fma(uint a, uint b, uint c) { return machine::bf16_fma_pair(a, b, c); }
  static METAL_FUNC void multiply_add(thread float (&sums)[4], uint a0, uint a1, uint a2, uint a3, uint b0, uint b1) {
    machine::mma_bf16_k16(sums, a0, a1, a2, a3, b0, b1);
  }
};

// The last four bits of each half of a word in the last digits of two numbers.
template <typename Pairs>
METAL_FUNC uint digits_of(uint word) {
  return machine::and_or(word, 0x000f000fu, Pairs::kBase);
}
template <typename Pairs>
METAL_FUNC uint centered_digits_of(uint word) {
  return Pairs::fma(digits_of<Pairs>(word), Pairs::kOnes, Pairs::kMinusBase8);
}

// Eight codes, centered, as the pairs in which they leave their words: codes of 4 bits four columns apart, those of 8
// bits two.
template <typename Pairs, int Bits>
METAL_FUNC void decode(thread uint (&pairs)[4], thread const uint* words) {
  MLXTS_UNROLL for (uint i = 0; i < 2; ++i) {
    if (Bits == 4) {
      const uint word = words[0] >> (8 * i);
      pairs[2 * i] = centered_digits_of<Pairs>(word);
      if constexpr (metal::is_same_v<Pairs, PairsF16>) {
        // The digits above count 16: f16 has room for them.
        const uint sixteens = machine::and_or(word, 0x00f000f0u, Pairs::kBase);
        pairs[2 * i + 1] = Pairs::fma(sixteens, Pairs::kSixteenths, Pairs::kMinus72);
      } else {
        pairs[2 * i + 1] = centered_digits_of<Pairs>(word >> 4);
      }
    } else {
      MLXTS_UNROLL for (uint e = 0; e < 2; ++e) {
        const uint word = words[i] >> (8 * e);
        const uint high = Pairs::fma(digits_of<Pairs>(word >> 4), Pairs::kSixteens, Pairs::kMinus17Base128);
        pairs[2 * i + e] = Pairs::fma(digits_of<Pairs>(word), Pairs::kOnes, high);
      }
    }
  }
}

// Of eight neighboring columns of a row of x, the pairs in the same order.
template <int Bits>
METAL_FUNC void order_pairs(thread uint* pairs, thread const uint* x) {
  constexpr uint kLow = 0x5410, kHigh = 0x7632, second = Bits == 4 ? 2 : 1, next = Bits == 4 ? 1 : 2;
  pairs[0] = machine::bytes_of(x[0], x[second], kLow);
  pairs[1] = machine::bytes_of(x[0], x[second], kHigh);
  pairs[2] = machine::bytes_of(x[next], x[next + second], kLow);
  pairs[3] = machine::bytes_of(x[next], x[next + second], kHigh);
}

}  // namespace mlxts
