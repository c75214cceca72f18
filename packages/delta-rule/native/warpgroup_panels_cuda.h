// Panels of threadgroup memory from which warpgroups multiply: 64 rows of 64 elements of 16 bits.
#pragma once
#include "pieces_cuda.h"

namespace mlxts {

constant constexpr uint kWarpgroup = 128;                               // threads
constant constexpr uint kPanelRow = 128, kPanelBytes = 64 * kPanelRow;  // bytes
constant constexpr uint kPanelRows = kWarpgroup / (kPanelRow / 16);     // of which each thread has a piece

// Of a row of a panel a piece of 16 bytes, where warpgroups look for it.
METAL_FUNC uint panel_piece(uint row, uint piece) { return row * kPanelRow + (piece ^ row % 8) * 16; }

// A thread's pieces of a panel on their way, one in every kPanelRows rows; zeros from `rows` rows behind its first on.
METAL_FUNC void start_panel(threadgroup uchar* to, device const bfloat* from, uint step, int rows) {
  MLXTS_UNROLL for (uint i = 0; i < 64; i += kPanelRows)
    machine::copy_start<16>(to + i * kPanelRow, from + i * step, rows > int(i) ? 16 : 0);
}

}  // namespace mlxts
