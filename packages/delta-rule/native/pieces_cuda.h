// Eight neighbors of 16 bits, which a GPU of NVIDIA moves at once where they are aligned.
#pragma once
#include <metal_stdlib>

namespace mlxts {

template <typename T>
struct alignas(16) Piece {
  T of[8];
};

METAL_FUNC bool aligned16(device const void* at) { return (ulong(at) & 15) == 0; }

}  // namespace mlxts
