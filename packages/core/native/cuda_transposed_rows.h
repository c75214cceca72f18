// Where warpgroups multiply W by xᵀ, a simdgroup has 16 columns of rows of out as rows of its products: lane 4 r + j
// has, of columns r and r + 8, rows 2 j and 2 j + 1 of each eight.
#pragma once
#include "metal_kernel.h"

namespace mlxts {

constant constexpr uint kTransposedBytes = 512;  // of 16 columns of 16 rows

// Adds `bias` to the columns r and r + 8 of a simdgroup's sums, Blocks · 8 rows in each part, and stores them rounded,
// by way of threadgroup memory: 16 rows at a time, which have kTransposedBytes at `room`, those from row 16 i on
// i % Rooms · Step bytes further. `rows` of them exist, of which row i begins at out_at(i) and has `columns`; these 16
// are those from number `first` on. `aligned`: eight columns of any row may be stored at once.
template <uint Rooms, uint Step, uint Parts, uint Blocks, typename OutAt>
METAL_FUNC void store_transposed(thread const float (&sums)[Parts][Blocks][4], thread const float (&bias)[2],
                                 threadgroup uchar* room, OutAt out_at, uint first, uint rows, uint columns,
                                 bool aligned, uint lane) {
  // The halves of every other four rows are swapped, so that lanes do not meet in a bank.
  threadgroup uchar *const to = room + lane % 8 * 32 + lane / 16 * 256 + (lane / 8 % 2 ^ lane / 4 % 2) * 16,
                    *const from = room + lane / 2 * 32 + (lane % 2 ^ lane / 8 % 2) * 16;
  const uint at = first + lane % 2 * 8;
  simdgroup_barrier(metal::mem_flags::mem_threadgroup);
  MLXTS_UNROLL for (uint i = 0; i < Parts * Blocks / 2; ++i) {
    uint own[4];
    MLXTS_UNROLL for (uint e = 0; e < 4; ++e) {
      thread const float* sum = sums[2 * i / Blocks][(2 * i + e / 2) % Blocks] + e % 2 * 2;
      own[e] = machine::bf16_pair(sum[0] + bias[e % 2], sum[1] + bias[e % 2]);
    }
    machine::store_matrices_transposed(to + i % Rooms * Step, own);
  }
  simdgroup_barrier(metal::mem_flags::mem_threadgroup);
  MLXTS_UNROLL for (uint i = 0; i < Parts * Blocks / 2; ++i) {
    const uint row = i * 16 + lane / 2;
    const uint4 eight = *(threadgroup const uint4*)(from + i % Rooms * Step);
    if (row >= rows) continue;
    device bfloat* to = out_at(row) + at;
    if (aligned && at + 8 <= columns)
      *(device uint4*)to = eight;
    else
      MLXTS_UNROLL for (uint e = 0; e < 8; ++e)
        if (at + e < columns) to[e] = as_type<bfloat>(ushort(eight[e / 2] >> e % 2 * 16));
  }
}

}  // namespace mlxts
