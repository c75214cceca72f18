// Panels of weights in f32, for rows of x in f32.
#pragma once
#include "panel_block.h"

namespace mlxts {

// Columns k0 … k0 + n − 1 of the weights, decoded: panels [n][kPanelColumns], one after the other.
template <int Bits>
void decode_f32_panels(const Block& w, uint32_t k0, uint32_t n, float* panels) {
  const Codes<Bits> codes;
  for (uint32_t v = 0; v * kLanes < round_up(w.count, kPanelColumns); ++v) {
    float* to = panels + v / kTileVectors * n * kPanelColumns + v % kTileVectors * kLanes;
    for (uint32_t k = 0; k < n; k += kChunk<Bits>) {
      const uint32_t count = (n - k < uint32_t(kChunk<Bits>) ? n - k : kChunk<Bits>) / kPerWord<Bits>;
      vu32 words[kLanes];
      w.load_transposed(v, (k0 + k) / kPerWord<Bits>, count, words);
      for (uint32_t i = 0; i < count; ++i, to += kPerWord<Bits> * kPanelColumns) {
        const size_t at = (k0 + k + i * kPerWord<Bits>) / w.groupSize * kBlock + v * kLanes;
        const vf32 scale = load(w.scales + at), bias = load(w.biases + at);
        const vu32 flipped = codes.flip(words[i]);
#pragma GCC unroll 8
        for (int j = 0; j < kPerWord<Bits>; ++j) store(to + j * kPanelColumns, fma(codes.at(flipped, j), scale, bias));
      }
    }
  }
}

// c[R, kPanelColumns] += x[R, n] · panel[n, kPanelColumns]
template <int R>
void multiply_f32_panel(const float* x, size_t stride, const float* panel, uint32_t n, float* c) {
  RegisterTile<R, kTileVectors> tile;
  tile.accumulate(x, stride, 1, panel, kPanelColumns, n);
  tile.each([&](size_t r, size_t column, vf32 sum) {
    float* to = c + r * kBlock + column;
    store(to, load(to) + sum);
  });
}

// c[m, kBlock] += x · Wᵀ, finish as in `multiply`
template <int Bits, typename Scratch, typename Finish>
void multiply_f32(const float* x, uint32_t m, uint32_t cols, const Block& w, Ahead& ahead, const Scratch& s,
                  Finish finish) {
  for (uint32_t k0 = 0; k0 < cols; k0 += kF32Depth) {
    const uint32_t n = cols - k0 < kF32Depth ? cols - k0 : kF32Depth;
    decode_f32_panels<Bits>(w, k0, n, s.panel);
    for (uint32_t column = 0; column < w.count; column += kPanelColumns)
      for_row_tiles<kPanelRows>(m, [&](uint32_t r, auto R) {
        ahead.step();
        multiply_f32_panel<R>(x + size_t(r) * cols + k0, cols, s.panel + column * n, n,
                              s.products + r * kBlock + column);
        if (k0 + n == cols && column + kPanelColumns >= w.count) finish(r, R);
      });
  }
}

}  // namespace mlxts
