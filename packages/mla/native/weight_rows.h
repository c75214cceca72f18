// A head's weight as CPU kernels read it: rows of numbers, or of codes with scales and biases.
#pragma once
#include "head_rows.params.h"
#include "head_weight.h"
#include "matrix_affine.h"

namespace mlxts {

// In place of a dtype: codes of `Bits` bits, scales and biases in S.
template <typename S, int Bits>
struct Affine {};

template <typename W>
inline constexpr bool kIsCodes = false;
template <typename S, int Bits>
inline constexpr bool kIsCodes<Affine<S, Bits>> = true;
// More tokens than these are multiplied by numbers that codes have become once; fewer by codes decoded in registers.
inline constexpr size_t kDecodedTokens = 4;

template <typename W>
struct WeightRows {
  const W* first;
  size_t stride;

  const W* row(size_t i) const { return first + i * stride; }
};

// kLanes words of a row: lane l has those of its columns l·kPerWord … from the first one on.
template <int Bits>
struct WeightWords {
  vu32 words;
  vf32 scale, bias;  // the bias that goes with centered codes

  // The j-th column of each word.
  MLXTS_INLINE vf32 at(const Codes<Bits>& codes, int j) const { return fma(codes.at(words, j), scale, bias); }
};

template <typename S, int Bits>
struct WeightRows<Affine<S, Bits>> {
  const uint8_t* words;
  const S *scales, *biases;
  size_t cols, groupShift;

  MLXTS_INLINE const uint8_t* word(size_t row, size_t column) const { return words + (row * cols + column) / 8 * Bits; }
  MLXTS_INLINE size_t group(size_t row, size_t column) const { return (row * cols + column) >> groupShift; }

  // `count` ≤ kLanes words from `column` on, a multiple of kChunk; weights of missing ones are finite.
  MLXTS_INLINE WeightWords<Bits> words_at(size_t row, size_t column, uint32_t count, const LaneScales& lanes,
                                          const Codes<Bits>& codes) const {
    const uint8_t* from = word(row, column);
    const size_t first = group(row, column), groups = group(row, column + count * kPerWord<Bits> - 1) - first + 1;
    const vf32 scale = lanes.of_groups(scales + first, groups), bias = lanes.of_groups(biases + first, groups);
    return {codes.flip(count == kLanes ? load_words(from) : load_words(from, count)), scale,
            fma(splat(kCenter<Bits>), scale, bias)};
  }

  // `count` weights of a row from `column` on, both multiples of 16, rounded to T; f32 ones have the bits of words_at.
  template <typename T>
  MLXTS_INLINE void decode(size_t row, size_t column, size_t count, T* to) const {
    for (size_t c = column; c < column + count; c += kLanes, to += kLanes) {
      const size_t g = group(row, c);
      const vf32 scale = splat(to_f32(scales[g])), bias = fma(splat(kCenter<Bits>), scale, splat(to_f32(biases[g])));
      store(to, fma(codes_at<Bits>(word(row, 0), c) - splat(kCenter<Bits>), scale, bias));
    }
  }
};

// The rows of a head, in kernels that declare x, weight, scales and biases in this order.
template <typename W, typename P>
struct WeightOf {
  static WeightRows<W> rows(const Launch& l, const P& p, size_t head) {
    return {l.buffer<const W>(HEAD_ROWS_WEIGHT) + head_weight(p, head, 0), p.cols};
  }
};
template <typename S, int Bits, typename P>
struct WeightOf<Affine<S, Bits>, P> {
  static WeightRows<Affine<S, Bits>> rows(const Launch& l, const P& p, size_t head) {
    const size_t first = head_weight(p, head, 0);
    return {l.buffer<const uint8_t>(HEAD_ROWS_WEIGHT) + first / 8 * Bits,
            l.buffer<const S>(HEAD_ROWS_SCALES) + first / p.groupSize,
            l.buffer<const S>(HEAD_ROWS_BIASES) + first / p.groupSize, p.cols,
            size_t(__builtin_ctz(p.groupSize))};
  }
};
template <typename W, typename P>
WeightRows<W> weight_rows(const Launch& l, const P& p, size_t head) {
  return WeightOf<W, P>::rows(l, p, head);
}

}  // namespace mlxts

// K(name, type) for every weight.
#define MLXTS_WEIGHTS_OF(K, s, S) K(s, S) K(s##b4, MLXTS_AFFINE(S, 4)) K(s##b8, MLXTS_AFFINE(S, 8))
#define MLXTS_AFFINE(S, bits) Affine<S, bits>
#define MLXTS_WEIGHTS(K) MLXTS_WEIGHTS_OF(K, f32, float) MLXTS_WEIGHTS_OF(K, f16, f16) MLXTS_WEIGHTS_OF(K, bf16, bf16)
