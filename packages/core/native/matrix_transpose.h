// Transposes: of vectors in registers, and of matrices in memory. They move bits only.
#pragma once
#include <utility>

#include "simd.h"

namespace mlxts {

typedef float vf32x4 __attribute__((vector_size(16)));

namespace shuffles {

// Result lane `lane` of vectors a and b of `lanes` lanes, as an index into a and b side by side, where each `group` of
// lanes takes units of `unit` lanes from a and b in turn: from the lower halves of their groups, or the upper ones.
constexpr int interleaved(int lane, int lanes, int group, int unit, bool upper) {
  const int at = lane % group, turn = at / unit;
  return turn % 2 * lanes + lane - at + (upper ? group / 2 : 0) + turn / 2 * unit + at % unit;
}
template <int kGroup, int kUnit, bool kUpper, typename V, int... L>
MLXTS_INLINE V interleave(V a, V b, std::integer_sequence<int, L...>) {
  return __builtin_shufflevector(a, b, interleaved(L, sizeof...(L), kGroup, kUnit, kUpper)...);
}
template <int kGroup, int kUnit, bool kUpper, typename V>
MLXTS_INLINE V interleave(V a, V b) {
  return interleave<kGroup, kUnit, kUpper>(a, b, std::make_integer_sequence<int, sizeof(V) / sizeof(a[0])>());
}

// Every other lane of a and b side by side, from the first or the second on.
template <bool kSecond, typename V, int... L>
MLXTS_INLINE V every_other(V a, V b, std::integer_sequence<int, L...>) {
  return __builtin_shufflevector(a, b, (2 * L + kSecond)...);
}

}  // namespace shuffles

// The lower (or upper) halves of a and b, lane by lane in turn: a₀ b₀ a₁ b₁ …
template <typename V>
inline constexpr int kLanesOf = sizeof(V) / sizeof(V{}[0]);
template <typename V>
MLXTS_INLINE V interleave_low(V a, V b) {
  return shuffles::interleave<kLanesOf<V>, 1, false>(a, b);
}
template <typename V>
MLXTS_INLINE V interleave_high(V a, V b) {
  return shuffles::interleave<kLanesOf<V>, 1, true>(a, b);
}
// The way back: the even lanes of both become a, the odd ones b.
template <typename V>
MLXTS_INLINE void deinterleave(V& a, V& b) {
  constexpr auto lanes = std::make_integer_sequence<int, sizeof(V) / 4>();
  const V even = shuffles::every_other<false>(a, b, lanes);
  b = shuffles::every_other<true>(a, b, lanes);
  a = even;
}

// The rows a, b, c and d: each 4 × 4 block of 32-bit lanes is transposed by itself.
template <typename V>
MLXTS_INLINE void transpose_blocks4(V& a, V& b, V& c, V& d) {
  using namespace shuffles;
  const V ab_low = interleave<4, 1, false>(a, b), ab_high = interleave<4, 1, true>(a, b);
  const V cd_low = interleave<4, 1, false>(c, d), cd_high = interleave<4, 1, true>(c, d);
  // Two lanes as one: there are instructions for these that know their pattern.
  typedef int64_t pairs __attribute__((vector_size(sizeof(V))));
  const auto halves = [](V low, V high, auto upper) __attribute__((always_inline)) {
    return reinterpret_cast<V>(
        interleave<2, 1, upper()>(reinterpret_cast<pairs>(low), reinterpret_cast<pairs>(high)));
  };
  a = halves(ab_low, cd_low, std::false_type());
  b = halves(ab_low, cd_low, std::true_type());
  c = halves(ab_high, cd_high, std::false_type());
  d = halves(ab_high, cd_high, std::true_type());
}

// v as the rows of a kLanes × kLanes matrix, transposed.
template <typename V>
MLXTS_INLINE void transpose(V (&v)[kLanes]) {
#if defined(__AVX512F__)
  // Four perfect shuffles of the rows: permutations across a whole register cost no more than others.
  MLXTS_UNROLL
  for (int round = 0; round < 4; ++round) {
    V shuffled[kLanes];
    MLXTS_UNROLL
    for (int i = 0; i < kLanes / 2; ++i) {
      shuffled[2 * i] = interleave_low(v[i], v[i + kLanes / 2]);
      shuffled[2 * i + 1] = interleave_high(v[i], v[i + kLanes / 2]);
    }
    MLXTS_UNROLL
    for (int i = 0; i < kLanes; ++i) v[i] = shuffled[i];
  }
#else
  MLXTS_UNROLL
  for (int i = 0; i < kLanes; i += 4) transpose_blocks4(v[i], v[i + 1], v[i + 2], v[i + 3]);
  if constexpr (kLanes == 8) {
    // The blocks change places.
    MLXTS_UNROLL
    for (int i = 0; i < 4; ++i) {
      const V low = shuffles::interleave<8, 4, false>(v[i], v[i + 4]);
      v[i + 4] = shuffles::interleave<8, 4, true>(v[i], v[i + 4]);
      v[i] = low;
    }
  }
#endif
}

// to[c][r] = from[r][c] for rows × columns of f32.
__attribute__((noinline)) inline void transpose(const float* from, size_t from_stride, size_t rows, size_t columns,
                                                float* to, size_t to_stride) {
  const size_t whole_rows = rows / kLanes * kLanes, whole_columns = columns / kLanes * kLanes;
  for (size_t r = 0; r < whole_rows; r += kLanes)
    for (size_t c = 0; c < whole_columns; c += kLanes) {
      vf32 block[kLanes];
      const float* row = from + r * from_stride + c;
      MLXTS_UNROLL
      for (int i = 0; i < kLanes; ++i, row += from_stride) block[i] = load(row);
      transpose(block);
      float* column = to + c * to_stride + r;
      MLXTS_UNROLL
      for (int i = 0; i < kLanes; ++i, column += to_stride) store(column, block[i]);
    }
  for (size_t r = 0; r < rows; ++r)
    for (size_t c = r < whole_rows ? whole_columns : 0; c < columns; ++c)
      to[c * to_stride + r] = from[r * from_stride + c];
}

}  // namespace mlxts
