// The inner loop of the matrix-vector product for x in limbs (limbs.h).
#pragma once
#include "limbs.h"
#include "matvec_dot.h"

namespace mlxts {

#if defined(__AVX512VNNI__)
// Σ (code − center)·x of each lane, in units of x.
template <int Bits, int Limbs>
MLXTS_INLINE vf32 limb_product(const vu32 (&codes)[kCodeVectors<Bits>], const LimbChunk<Bits, Limbs>& x) {
  // Each limb has a sum of its own: the processor adds to all of them at the same time.
  const auto sum_of = [&](vi32 sum, int k) __attribute__((always_inline)) {
#pragma GCC unroll 2
    for (int i = 0; i < kCodeVectors<Bits>; ++i) sum = dot_int8x4(sum, codes[i], reinterpret_cast<vu32>(x.limbs[k][i]));
    return sum;
  };
  if constexpr (kLimbSums<Bits, Limbs> == 2) {
    const vi32 high = (sum_of(vi32{}, 0) << 8) + sum_of(x.center[0], 1), last = sum_of(x.center[1], 2);
    return fma(__builtin_convertvector(high, vf32), splat(256), __builtin_convertvector(last, vf32));
  }
  vi32 sum = sum_of(x.center[0], Limbs - 1);
#pragma GCC unroll 2
  for (int k = 0; k + 1 < Limbs; ++k) sum += sum_of(vi32{}, k) << (8 * (Limbs - 1 - k));
  return __builtin_convertvector(sum, vf32);
}

// As dot_f32.
template <int Bits, int R, int M, int Limbs>
void dot_limbs(const WeightRows& w, const XRows<LimbChunk<Bits, Limbs>>& x, uint32_t begin, uint32_t end, vf32* sums,
               size_t stride) {
  vf32 acc[R][M] = {};
  each_chunk<Bits, (Limbs < 3 ? Fetch::twice : Fetch::once)>(
      w, x, begin, end, acc,
      [&](uint32_t word, const vu32* words, const vf32* scales, uint32_t column) __attribute__((always_inline)) {
        vu32 codes[R][kCodeVectors<Bits>];
        vf32 scale[R];
#pragma GCC unroll 4
        for (int r = 0; r < R; ++r) {
#pragma GCC unroll 2
          for (int i = 0; i < kCodeVectors<Bits>; ++i) codes[r][i] = code_bytes<Bits>(words[r], i);
          scale[r] = w.lanes.of_section(scales[r], column);
        }
#pragma GCC unroll 4
        for (int m = 0; m < M; ++m) {
          const LimbChunk<Bits, Limbs>& chunk = x.ordered[m * x.stride + word / kLanes];
#pragma GCC unroll 4
          for (int r = 0; r < R; ++r)
            acc[r][m] = fma(limb_product<Bits, Limbs>(codes[r], chunk), scale[r] * chunk.unit, acc[r][m]);
        }
      });
  for (int r = 0; r < R; ++r)
    for (int m = 0; m < M; ++m) sums[r * stride + m] += acc[r][m];
}
#endif

}  // namespace mlxts
