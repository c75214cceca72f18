// Words of an MLX affine matrix on their way into a tile of metal_tile.h.
#pragma once
#include "metal_affine.h"
#include "metal_tile.h"

namespace mlxts {

// A matrix W [rows, cols].
template <typename S, int Bits>
struct AffineMatrix {
  device const uint* words;
  device const S* scales;
  device const S* biases;
  uint rows, cols, groupSize;
};

// `Count` neighboring codes of a row and a group, a multiple of 8, on their way from device memory: started before the
// products of another tile, stored after them. Where W has no such row or column, scale and bias are 0.
template <typename S, int Bits, uint Count>
struct HeldCodes {
  uint words[Count * Bits / 32];
  S scale, bias;

  METAL_FUNC void start(thread const AffineMatrix<S, Bits>& w, uint row, uint column) thread {
    const bool exists = row < w.rows && column < w.cols;
    const ulong group = ulong(row) * (w.cols / w.groupSize) + (column >> metal::ctz(w.groupSize));
    device const uint* from = w.words + (ulong(row) * (w.cols / 32) * Bits + column / 8 * (Bits / 4));
    scale = bias = S(0.0f);
    MLXTS_UNROLL for (uint i = 0; i < Count * Bits / 32; ++i) words[i] = 0;
    if (!exists) return;
    load(words, from);
    scale = w.scales[group];
    bias = w.biases[group];
  }

  // The bias that goes with centered codes.
  METAL_FUNC float offset() const thread { return centered<Bits>(float(scale), float(bias)); }

  // The centered codes themselves; every float dtype holds them exactly.
  template <typename E>
  METAL_FUNC void store_codes(threadgroup E* to) const thread {
    MLXTS_UNROLL for (uint i = 0; i < Count; i += 8) {
      const Codes codes = Packed<Bits>::eight(words + i * Bits / 32);
      store_tile(to + i, float4(codes.low), float4(codes.high));
    }
  }

  // The weights that they stand for.
  METAL_FUNC void store_weights(threadgroup float* to) const thread {
    const float4 factor = float4(float(scale)), added = float4(offset());
    MLXTS_UNROLL for (uint i = 0; i < Count; i += 8) {
      const Codes codes = Packed<Bits>::eight(words + i * Bits / 32);
      store_tile(to + i, metal::fma(float4(codes.low), factor, added), metal::fma(float4(codes.high), factor, added));
    }
  }
};

}  // namespace mlxts
