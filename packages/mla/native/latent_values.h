// Products of weights and latents, which become panels of columns (matrix_microkernel.h).
#pragma once
#include "matrix_pack.h"

namespace mlxts {

// Element `i` of a whole panel, kTileVectors vectors of columns, from the rows of b; stored as well.
template <typename B>
MLXTS_INLINE void pack_element(const B* b, size_t stride, size_t i, float* panel, vf32 (&columns)[kTileVectors]) {
  MLXTS_UNROLL
  for (int v = 0; v < kTileVectors; ++v) {
    columns[v] = load(b + i * stride + v * kLanes);
    store(panel + i * kPanelColumns + v * kLanes, columns[v]);
  }
}
MLXTS_INLINE void pack_element(const bf16* b, size_t stride, size_t i, bf16x2* panel, vu32 (&columns)[kTileVectors]) {
  const bf16 *first = b + 2 * i * stride, *second = first + stride;
  MLXTS_UNROLL
  for (int v = 0; v < kTileVectors; v += 2) {
    interleave_bf16(load_bf16x2(first + v * kLanes), load_bf16x2(second + v * kLanes), columns[v], columns[v + 1]);
    store_bf16x2(panel + i * kPanelColumns + v * kLanes, columns[v]);
    store_bf16x2(panel + i * kPanelColumns + (v + 1) * kLanes, columns[v + 1]);
  }
}

template <typename B, typename P, int Rows>
__attribute__((noinline)) void packing_tile(const Left<P>* a, size_t a_stride, const B* b, size_t b_stride,
                                            size_t depth, P* panel, float* c, size_t c_stride, const float* factors) {
  RegisterTile<Rows, kTileVectors> tile;
  tile.each([&](size_t r, size_t j, vf32& sum) { sum = load(c + r * c_stride + j) * splat(factors[r]); });
  for (size_t i = 0; i < depth; ++i) {
    std::conditional_t<std::is_same_v<P, float>, vf32, vu32> columns[kTileVectors];
    pack_element(b, b_stride, i, panel, columns);
    tile.add(a + i * kPerElement<P>, a_stride, columns);
  }
  tile.each([&](size_t r, size_t j, vf32 sum) { store(c + r * c_stride + j, sum); });
}

// As multiply_panel, with factors, for a whole panel that is packed from the rows of b on the way.
template <typename B, typename P>
MLXTS_INLINE void pack_and_multiply(int rows, const Left<P>* a, size_t a_stride, const B* b, size_t b_stride,
                                    size_t depth, P* panel, float* c, size_t c_stride, const float* factors) {
  typedef void (*Tile)(const Left<P>*, size_t, const B*, size_t, size_t, P*, float*, size_t, const float*);
  static constexpr Tile tiles[kPanelRows] = {packing_tile<B, P, 1>, packing_tile<B, P, 2>, packing_tile<B, P, 3>,
                                             packing_tile<B, P, 4>, packing_tile<B, P, 5>, packing_tile<B, P, 6>};
  tiles[rows - 1](a, a_stride, b, b_stride, depth, panel, c, c_stride, factors);
}

}  // namespace mlxts
