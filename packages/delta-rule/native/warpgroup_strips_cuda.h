// Whole chunks where warpgroups multiply: tiles of 128 columns in two panels, and a simdgroup's strip on its way from
// and to them.
#pragma once
#include "warpgroup_panels_cuda.h"
#include "wide_tiles_cuda.h"

namespace mlxts {

constant constexpr uint kPanelTile = 2 * kPanelBytes;

// A tile's rows on their way; zeros where there are no more rows or columns. Panels of longer tiles lie `next` apart.
METAL_FUNC void start_panels(threadgroup uchar* to, device const bfloat* from, uint step, uint rows, uint columns,
                             uint index, uint next = kPanelBytes) {
  const uint row = index / 8, piece = index % 8;
  to += panel_piece(row, piece);
  from += row * step + piece * 8;
  const int own = int(rows) - int(row), none = 0;
  start_panel(to, from, step, piece * 8 < columns ? own : none);
  start_panel(to + next, from + 64, step, 64 + piece * 8 < columns ? own : none);
}

// A strip of a tile as a left operand.
METAL_FUNC void load_strip(thread TileLeft<bfloat, kStrip, kWide>& left, threadgroup const uchar* tile, Strip s) {
  const uint row = s.first + s.lane % 16;
  MLXTS_UNROLL for (uint k = 0; k < kWide / 16; ++k) {
    uint(&a)[4] = left.blocks[0][k];
    const uint at = k / 4 * kPanelBytes + panel_piece(row, k % 4 * 2 + s.lane / 16);
    machine::load_matrices(a[0], a[1], a[2], a[3], tile + at);
  }
}

// sums = left · tileᵀ, begun: as many columns as the tile has rows. Its panels lie `next` apart.
template <uint Columns>
METAL_FUNC void start_dots(thread TileSum<kStrip, Columns>& sums, thread const TileLeft<bfloat, kStrip, kWide>& left,
                           threadgroup const uchar* tile, uint next = kPanelBytes) {
  const ulong rows = machine::warpgroup_operand(tile);
  machine::warpgroup_begin();
  MLXTS_UNROLL for (uint k = 0; k < kWide / 16; ++k)
      machine::warpgroup_bf16_k16(sums.blocks[0], left.blocks[0][k], rows + k / 4 * (next >> 4) + k % 4 * 2, k > 0);
  machine::warpgroup_end();
}

// A strip, rounded, to rows of a tile, and its real rows from there to device memory.
METAL_FUNC void stage_strip(thread const TileSum<kStrip, kWide>& sum, threadgroup bfloat* tile) {
  threadgroup bfloat* to = (threadgroup bfloat*)own_row<bfloat>(tile, kWideStride);
  const TileLeft<bfloat, kStrip, kWide> rounded = as_left<bfloat>(sum);
  MLXTS_UNROLL for (uint k = 0; k < kWide / 16; ++k) machine::store_matrices(to + 16 * k, rounded.blocks[0][k]);
}
METAL_FUNC void take_strip(device bfloat* to, threadgroup const bfloat* tile, uint stride, uint columns, Strip s) {
  const uint row = s.lane / kPieces, column = s.lane % kPieces * 8;
  if (column >= columns) return;
  to += (s.first + row) * stride + column;
  tile += row * kWideStride + column;
  MLXTS_UNROLL for (uint i = 0; i < kStrip; i += kSimd / kPieces) {
    if (row + i < s.rows) *(device uint4*)(to + i * stride) = *(threadgroup const uint4*)(tile + i * kWideStride);
  }
}

}  // namespace mlxts
