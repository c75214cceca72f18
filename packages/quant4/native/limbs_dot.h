// The inner loop of the matrix-vector product for x in limbs (limbs.h) with AVX-512.
#pragma once
#include "int8_activations.h"
#include "matvec_dot.h"

namespace mlxts {

#if defined(__AVX512VNNI__)
// Σ code·x of each lane, in units of x; of three limbs Σ (code − center)·x.
template <int Bits, int Limbs>
MLXTS_INLINE vf32 limb_product(const vu32 (&codes)[kCodeVectors<Bits>], const LimbChunk<Bits, Limbs>& x) {
  const auto add_limb = [&](vi32 sum, int k) __attribute__((always_inline)) {
    MLXTS_UNROLL
    for (int i = 0; i < kCodeVectors<Bits>; ++i) sum = dot_int8x4(sum, codes[i], reinterpret_cast<vu32>(x.limbs[k][i]));
    return sum;
  };
  if constexpr (Limbs == 1) return __builtin_convertvector(add_limb(vi32{}, 0), vf32);
  if constexpr (Limbs == 2) return __builtin_convertvector(add_limb(add_limb(vi32{}, 0) << 8, 1), vf32);
  if constexpr (Limbs == 3) {
    const auto limb = [&](int k) __attribute__((always_inline)) { return as_f32(add_limb(x.start[k], k)); };
    return limb(0) - x.zero + limb(1) + limb(2);
  }
}

// As dot_f32.
template <int Bits, Fetch F, int R, int M, int Limbs, typename S>
MLXTS_INLINE void dot_limbs(const WeightRows& w, const XRows<LimbChunk<Bits, Limbs>>& x, uint32_t begin, uint32_t end,
                            vf32* sums, size_t stride) {
  constexpr float center = kCentered<Limbs> ? kCenter<Bits> : 0;
  vf32 acc[R][M] = {};
  const auto add_section = [&](uint32_t first, uint32_t last, const vf32 (&scales)[R]) {
    const LimbChunk<Bits, Limbs>* section = x.ordered + first / kLanes;
    vf32 products[R][M] = {};
    each_chunk<Bits, F, R>(
        w, first, last,
        [&](uint32_t chunk, auto words_of, const ChunkScales<Bits>& lanes) __attribute__((always_inline)) {
          vf32 scale[R];
          MLXTS_UNROLL
          for (int r = 0; r < R; ++r) scale[r] = lanes.of(scales[r]);
          MLXTS_UNROLL
          for (int r = 0; r < R; ++r) {
            const vu32 words = in_register(words_of(r));
            vu32 codes[kCodeVectors<Bits>];
            MLXTS_UNROLL
            for (int i = 0; i < kCodeVectors<Bits>; ++i) codes[i] = code_bytes<Bits>(words, i);
            MLXTS_UNROLL
            for (int m = 0; m < M; ++m) {
              const LimbChunk<Bits, Limbs>& of = section[m * x.stride + chunk];
              vf32 unit = scale[r];
              if constexpr (Limbs == 1) unit *= of.unit;
              products[r][m] = fma(limb_product<Bits, Limbs>(codes, of), unit, products[r][m]);
            }
          }
        });
    MLXTS_UNROLL
    for (int r = 0; r < R; ++r) {
      MLXTS_UNROLL
      for (int m = 0; m < M; ++m) {
        if constexpr (Limbs > 1 && !kSumsAreFloats<Limbs>)
          acc[r][m] = fma(products[r][m], section[m * x.stride].unit, acc[r][m]);
        else
          acc[r][m] += products[r][m];
      }
    }
  };
  each_section<Bits, F, R, M, S>(w, x, begin, end, center, acc, add_section);
  for (int r = 0; r < R; ++r)
    for (int m = 0; m < M; ++m) sums[r * stride + m] += acc[r][m];
}
#endif

}  // namespace mlxts
