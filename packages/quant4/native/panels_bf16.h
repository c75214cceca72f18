// Panels of codes as bf16x2, in which they are exact, for rows of bf16 x.
#pragma once
#include "panel_block.h"

namespace mlxts {

#if defined(__AVX512BF16__)
// Columns k0 … k0 + n − 1 of the codes, a panel of bf16x2: [n / 2][kBlock]. The two columns are half a word apart.
template <int Bits>
void decode_bf16_panel(const Block& w, uint32_t k0, uint32_t n, bf16x2* panel) {
  constexpr int kSteps = kPerWord<Bits> / 2;
  alignas(64) uint16_t entries[32];
  for (int i = 0; i < 32; ++i) entries[i] = from_f32<bf16>(float(i % 16 - 8)).bits;
  const __m512i table = _mm512_load_si512(entries);
  for (uint32_t v = 0; v < kBlock / kLanes; ++v) {
    bf16x2* to = panel + v * kLanes;
    for (uint32_t k = 0; k < n; k += kChunk<Bits>) {
      const uint32_t count = (n - k < uint32_t(kChunk<Bits>) ? n - k : kChunk<Bits>) / kPerWord<Bits>;
      vu32 words[kLanes];
      w.load_transposed(v, (k0 + k) / kPerWord<Bits>, count, words);
      for (uint32_t i = 0; i < count; ++i, to += kSteps * kBlock) {
#pragma GCC unroll 4
        for (int j = 0; j < kSteps; ++j) {
          vu32 codes;
          if constexpr (Bits == 4) {
            const __m512i shifted = _mm512_srli_epi16(reinterpret_cast<__m512i>(words[i]), uint32_t(4 * j));
            codes = reinterpret_cast<vu32>(_mm512_permutexvar_epi16(shifted, table));
          } else {
            const vi32 flipped = reinterpret_cast<vi32>(words[i] ^ 0x80808080u);
            const vf32 first = __builtin_convertvector((flipped << (24 - 8 * j)) >> 24, vf32);
            const vf32 second = __builtin_convertvector((flipped << (8 - 8 * j)) >> 24, vf32);
            // Whole numbers up to 128 have no more bits than bf16.
            codes = (reinterpret_cast<vu32>(first) >> 16) | (reinterpret_cast<vu32>(second) & 0xffff0000u);
          }
          store_bf16x2(to + j * kBlock, codes);
        }
      }
    }
  }
}

// The column of 32 that is i-th where pairs of columns half a word apart are neighbors.
template <int Bits>
void code_order(uint16_t (&order)[32]) {
  constexpr int per = kPerWord<Bits>;
  for (int i = 0; i < 32; ++i) order[i] = uint16_t(i / per * per + i % per / 2 + (i % 2) * per / 2);
}

// Row r of m rows of bf16 x, columns in the order in which panels of codes have them; Σx of each group.
template <int Bits>
void order_bf16(const uint8_t* x, uint32_t cols, uint32_t groupSize, uint32_t m, uint32_t r, bf16* to, float* sums) {
  alignas(64) uint16_t order[32];
  code_order<Bits>(order);
  const __m512i index = _mm512_load_si512(order);
  for (uint32_t g = 0; g < cols / groupSize; ++g) {
    const uint32_t first = g * groupSize, k0 = first / kCodeDepth * kCodeDepth;
    bf16* row = to + panel_row(m, k0, panel_columns(cols, k0), r) - k0;
    vf32 sum = {};
    for (uint32_t k = first; k < first + groupSize; k += 32) {
      const __m512i v = _mm512_loadu_si512(x + size_t(k) * 2);
      _mm512_storeu_si512(row + k, _mm512_permutexvar_epi16(index, v));
      sum += widen_first(reinterpret_cast<vu32>(v)) + widen_second(reinterpret_cast<vu32>(v));
    }
    sums[size_t(g) * m + r] = reduce_add(sum);
  }
}

// c[R, kBlock] += Σ scale·(codes·x) + bias·Σx over `groups` groups, of `depth` bf16x2 each. x and its sums are those of
// the first row; the rows are xStride apart, sums of one row m.
template <int R>
void multiply_bf16_panel(const bf16* x, size_t xStride, const bf16x2* panel, uint32_t groups, uint32_t depth,
                         const float* scales, const float* biases, const float* sums, size_t m, float* c,
                         Ahead& ahead) {
  for (uint32_t g = 0; g < groups; ++g, x += 2 * depth, panel += depth * kBlock) {
    ahead.step();
    RegisterTile<R, kBlock / kLanes> dot;
    dot.accumulate(x, xStride, 2, panel, kBlock, depth);
#pragma GCC unroll 6
    for (int r = 0; r < R; ++r) {
      const vf32 sum = splat(sums[g * m + r]);
      // Read again for each row: all of them do not fit beside the sums.
      const float *scale = anew(scales + g * kBlock), *bias = anew(biases + g * kBlock);
      float* row = anew(c + r * kBlock);
#pragma GCC unroll 4
      for (int v = 0; v < dot.vectors; ++v) {
        float* to = row + v * kLanes;
        const vf32 with = fma(dot.sum[r][v], load(scale + v * kLanes), load(to));
        store(to, fma(sum, load(bias + v * kLanes), with));
      }
    }
  }
}
// c[m, kBlock] += x · Wᵀ
template <int Bits, typename Scratch>
void multiply_bf16(const bf16* x, uint32_t m, uint32_t cols, const Block& w, Ahead& ahead, const Scratch& s) {
  bf16x2* panel = reinterpret_cast<bf16x2*>(s.panel);
  for (uint32_t k0 = 0; k0 < cols; k0 += kCodeDepth) {
    const uint32_t n = panel_columns(cols, k0), g0 = k0 / w.groupSize;
    decode_bf16_panel<Bits>(w, k0, n, panel);
    for_row_tiles<kPanelRows>(m, [&](uint32_t r, auto R) {
      multiply_bf16_panel<R>(x + panel_row(m, k0, n, r), n, panel, n / w.groupSize, w.groupSize / 2,
                             w.scales + g0 * kBlock, w.biases + g0 * kBlock, s.sums + size_t(g0) * m + r, m,
                             s.products + r * kBlock, ahead);
    });
  }
}
#endif

}  // namespace mlxts
