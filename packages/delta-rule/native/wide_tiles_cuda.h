// Chunks of 64 tokens with elements of 16 bits on NVIDIA's GPUs: tiles as wide as a key of 128, all of them on their way
// at once.
#pragma once
#include "chunk_strips.h"
#include "pieces_cuda.h"

namespace mlxts {

constant constexpr uint kWide = 128, kWideRows = kStrip * kStrips, kWideThreads = kStrips * kSimd;
constant constexpr uint kWideStride = tile_stride<ushort>(kWide), kWideTile = kWideRows * kWideStride;
constant constexpr uint kPieces = kWide / 8;  // of a row

METAL_FUNC uint left_of(uint columns, uint from) { return columns > from ? columns - from : 0; }

// The first rows and columns of a matrix on their way to a tile [Rows, kWide]; zeros for the others.
template <uint Rows, uint Threads = kWideThreads, typename T>
METAL_FUNC void start_wide(threadgroup T* to, device const T* from, uint stride, uint rows, uint columns, uint index) {
  const uint row = index / kPieces, column = index % kPieces * 8;
  MLXTS_UNROLL for (uint i = 0; i < Rows; i += Threads / kPieces) {
    const bool real = row + i < rows && column < columns;
    machine::copy_start<16>(to + (row + i) * kWideStride + column, from + (real ? (row + i) * stride + column : 0),
                            real ? 16 : 0);
  }
}

// A strip of sums, rounded, by way of the strip's own rows of a tile, to rows of device memory.
template <uint Columns, typename T>
METAL_FUNC void store_wide(thread const TileSum<kStrip, Columns>& sum, threadgroup T* tile, device T* to, uint stride,
                           uint columns, Strip s) {
  constexpr uint kOwn = Columns / 8;  // pieces of a row
  tile += s.first * kWideStride;
  store(sum, tile, kWideStride, s.lane);
  simdgroup_barrier(metal::mem_flags::mem_threadgroup);
  const uint row = s.lane / kOwn, column = s.lane % kOwn * 8;
  MLXTS_UNROLL for (uint i = 0; i < kStrip; i += kSimd / kOwn) {
    threadgroup const T* from = tile + (row + i) * kWideStride + column;
    if (row + i >= s.rows || column >= columns) continue;
    device T* at = to + (s.first + row + i) * stride + column;
    if (aligned16(at)) {
      *(device uint4*)at = *(threadgroup const uint4*)from;
    } else {
      for (uint n = 0; n < 8; ++n) at[n] = from[n];
    }
  }
}

}  // namespace mlxts
