// Panels of codes as unsigned bytes, for rows of x in limbs (limb_rows.h).
#pragma once
#include "limb_rows.h"

namespace mlxts {

#if defined(__AVX512VNNI__)
// Limbs of a row of x fill the registers as rows of f32 do.
template <int Limbs>
inline constexpr int kLimbRows = kPanelRows / Limbs;

// Columns k0 … k0 + n − 1 of the codes: [n / 4][kBlock], four bytes each, columns in the order of order_limbs.
template <int Bits>
void decode_byte_panel(const Block& w, uint32_t k0, uint32_t n, uint32_t* panel) {
  constexpr uint32_t kSteps = kPerWord<Bits> / 4;
  for (uint32_t v = 0; v < kBlock / kLanes; ++v) {
    uint32_t* to = panel + v * kLanes;
    for (uint32_t k = 0; k < n; k += kChunk<Bits>) {
      const uint32_t count = (n - k < uint32_t(kChunk<Bits>) ? n - k : kChunk<Bits>) / kPerWord<Bits>;
      vu32 words[kLanes];
      w.load_transposed(v, (k0 + k) / kPerWord<Bits>, count, words);
      for (uint32_t i = 0; i < count; ++i, to += kSteps * kBlock) {
        const vu32 low = Bits == 4 ? words[i] & 0x0f0f0f0fu : words[i], high = words[i] >> 4 & 0x0f0f0f0fu;
        memcpy(to, &low, sizeof low);
        if constexpr (Bits == 4) memcpy(to + kBlock, &high, sizeof high);
      }
    }
  }
}

// c[R, kBlock] += Σ scale·(codes·x) + bias·Σx over `groups` groups, of `steps` four columns each. x and its groups are
// those of the first row; the rows are xStride bytes apart, groups of one row m.
template <int R, int Limbs>
void multiply_limbs_panel(const int8_t* x, size_t xStride, const uint32_t* panel, uint32_t groups, uint32_t steps,
                          const float* scales, const float* biases, const LimbGroup<Limbs>* xGroups, size_t m, float* c,
                          Ahead& ahead) {
  constexpr int kVectors = kBlock / kLanes;
  for (uint32_t g = 0; g < groups; ++g, xGroups += m, scales += kBlock, biases += kBlock) {
    ahead.step();
    vi32 sums[R][kVectors][Limbs];
    MLXTS_UNROLL
    for (int r = 0; r < R; ++r) {
      MLXTS_UNROLL
      for (int l = 0; l < Limbs; ++l) {
        MLXTS_UNROLL
        for (int v = 0; v < kVectors; ++v) sums[r][v][l] = splat_i32(xGroups[r].start[l]);
      }
    }
    for (uint32_t i = 0; i < steps; ++i, panel += kBlock, x += 4 * Limbs) {
      vu32 codes[kVectors];
      MLXTS_UNROLL
      for (int v = 0; v < kVectors; ++v) memcpy(&codes[v], panel + v * kLanes, sizeof codes[v]);
      MLXTS_UNROLL
      for (int r = 0; r < R; ++r) {
        MLXTS_UNROLL
        for (int l = 0; l < Limbs; ++l) {
          const vu32 limb = splat_bf16x2(reinterpret_cast<const bf16*>(x + r * xStride + 4 * l));
          MLXTS_UNROLL
          for (int v = 0; v < kVectors; ++v) sums[r][v][l] = dot_int8x4(sums[r][v][l], codes[v], limb);
        }
      }
    }
    MLXTS_UNROLL
    for (int r = 0; r < R; ++r) {
      const vf32 sum = splat(xGroups[r].sum);
      const float *scale = anew(scales), *bias = anew(biases);
      float* row = anew(c + r * kBlock);
      MLXTS_UNROLL
      for (int v = 0; v < kVectors; ++v) {
        float* to = row + v * kLanes;
        const vf32 with = fma(xGroups[r].dot(sums[r][v]), load(scale + v * kLanes), load(to));
        store(to, fma(sum, load(bias + v * kLanes), with));
      }
    }
  }
}

// c[m, kBlock] += x · Wᵀ, finish as in `multiply`
template <int Bits, int Limbs, typename Scratch, typename Finish>
void multiply_limbs(const int8_t* x, uint32_t m, uint32_t cols, const Block& w, Ahead& ahead, const Scratch& s,
                    Finish finish) {
  uint32_t* panel = reinterpret_cast<uint32_t*>(s.panel);
  const auto* groups = reinterpret_cast<const LimbGroup<Limbs>*>(s.sums);
  for (uint32_t k0 = 0; k0 < cols; k0 += kCodeDepth) {
    const uint32_t n = panel_columns(cols, k0), g0 = k0 / w.groupSize;
    decode_byte_panel<Bits>(w, k0, n, panel);
    for_row_tiles<kLimbRows<Limbs>>(m, [&](uint32_t r, auto R) {
      multiply_limbs_panel<R, Limbs>(x + Limbs * panel_row(m, k0, n, r), Limbs * n, panel, n / w.groupSize,
                                     w.groupSize / 4, w.scales + g0 * kBlock, w.biases + g0 * kBlock,
                                     groups + size_t(g0) * m + r, m, s.products + r * kBlock, ahead);
      if (k0 + n == cols) finish(r, R);
    });
  }
}
#endif

}  // namespace mlxts
