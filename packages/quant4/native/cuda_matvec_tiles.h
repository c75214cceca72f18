// One row of x in bf16 against codes of 4 bits on GPUs that copy by themselves (compute capability 9.0): as
// cuda_matvec_row.h has it, with the same sums in the same order, but W comes in tiles of 16 rows, all their columns at
// once, to threadgroup memory. So a threadgroup has whole tiles on their way before it waits for other kernels, and
// needs no registers for them. It takes one tile after another where there are more tiles than threadgroups.
#pragma once
#include "cuda_matvec.h"

namespace mlxts {

constant constexpr uint kStages = 2;  // tiles in threadgroup memory where a threadgroup takes several
constant constexpr uint kPiece = 16;  // bytes that are copied at once

METAL_FUNC ulong pieces_begin(ulong address) { return address / kPiece * kPiece; }
METAL_FUNC ulong pieces_end(ulong address) { return (address + kPiece - 1) / kPiece * kPiece; }

// Where a tile lies in its stage: codes of its rows, then scales and biases, of which the last piece may hold others'.
// Of two matrices it has eight rows each.
template <typename S, uint Matrices>
struct TileInMemory {
  static constant constexpr uint kRowsOfOne = kTileRows / Matrices;
  uint pitch, groups;  // bytes of the codes of a row; groups of a row

  METAL_FUNC TileInMemory(uint cols, uint groupSize) thread : pitch(cols / 2), groups(cols >> metal::ctz(groupSize)) {}
  METAL_FUNC uint codesBytes() const thread { return kTileRows * pitch; }
  METAL_FUNC uint scalesBytes() const thread { return uint(pieces_end(kRowsOfOne * groups * sizeof(S))) + kPiece; }
  METAL_FUNC uint bytes() const thread { return codesBytes() + 2 * Matrices * scalesBytes(); }
  METAL_FUNC threadgroup uchar* scales(threadgroup uchar* stage, uint matrix, uint biases) const thread {
    return stage + codesBytes() + (2 * matrix + biases) * scalesBytes();
  }
  // The number of the tile that came from there.
  METAL_FUNC float number(threadgroup const uchar* scales, device const S* from, uint row, uint group) const thread {
    return float(((threadgroup const S*)(scales + ulong(from) % kPiece))[row * groups + group]);
  }
};

// Copies of neighboring bytes, of which they take whole pieces.
struct Pieces {
  ulong from;
  uint bytes;

  METAL_FUNC Pieces(device const void* first, uint count) thread {
    from = pieces_begin(ulong(first));
    bytes = uint(pieces_end(ulong(first) + count) - from);
  }
};

// One thread brings the first rows of w, or as many as there are.
template <typename S, uint Matrices>
METAL_FUNC void bring_tile(TileInMemory<S, Matrices> tile, threadgroup uchar* stage, threadgroup ulong* arrival,
                           thread const AffineMatrix<S, 4> (&w)[Matrices]) {
  constexpr uint kRowsOfOne = kTileRows / Matrices;
  uint all = 0;
  MLXTS_UNROLL for (uint go = 0; go < 2; ++go) {
    if (go == 1) machine::arrival_expect(arrival, all);
    MLXTS_UNROLL for (uint t = 0; t < Matrices; ++t) {
      const uint rows = metal::min(w[t].rows, kRowsOfOne), count = rows * tile.groups * uint(sizeof(S));
      const Pieces codes(w[t].words, rows * tile.pitch), scales(w[t].scales, count), biases(w[t].biases, count);
      if (go == 0) {
        all += codes.bytes + scales.bytes + biases.bytes;
      } else {
        machine::arrival_copy(arrival, stage + t * kRowsOfOne * tile.pitch, (device const void*)codes.from, codes.bytes);
        machine::arrival_copy(arrival, tile.scales(stage, t, 0), (device const void*)scales.from, scales.bytes);
        machine::arrival_copy(arrival, tile.scales(stage, t, 1), (device const void*)biases.from, biases.bytes);
      }
    }
  }
}

// x of the simdgroup's spans.
METAL_FUNC void keep_spans(thread const RowOfX& row, device const bfloat* x, uint cols, uint lane, uint simdgroup,
                           uint simdgroups) {
  constexpr uint kAtOnce = 5;
  const uint spans = spans_of(cols);
  for (uint first = simdgroup; first < spans; first += kAtOnce * simdgroups) {
    uint4 columns[kAtOnce];
    MLXTS_UNROLL for (uint i = 0; i < kAtOnce; ++i) if (first + i * simdgroups < spans) columns[i] =
        columns_of(x, cols, first + i * simdgroups, lane);
    MLXTS_UNROLL for (uint i = 0; i < kAtOnce; ++i) if (first + i * simdgroups < spans)
        keep_columns(row, columns[i], first + i * simdgroups, lane);
  }
  simdgroup_barrier(metal::mem_flags::mem_threadgroup);
}

// The simdgroup's sums of a tile, of its spans: to[row].
template <typename S, uint Matrices>
METAL_FUNC void sum_tile(TileInMemory<S, Matrices> tile, threadgroup uchar* stage, thread const RowOfX& row,
                         thread const AffineMatrix<S, 4> (&w)[Matrices], threadgroup float* to, uint lane,
                         uint simdgroup, uint simdgroups) {
  const uint g = lane / 4, j = lane % 4;
  const uint cols = w[0].cols, spans = spans_of(cols), shift = metal::ctz(w[0].groupSize / 64), units = cols / 64;

  // What this lane has of two rows of the tile. Rows that do not exist are the last one again.
  threadgroup const uchar* codes[2];
  threadgroup const uchar* scales[2];
  threadgroup const uchar* biases[2];
  device const S* scalesFrom[2];
  device const S* biasesFrom[2];
  uint rows[2];
  MLXTS_UNROLL for (uint h = 0; h < 2; ++h) {
    const uint t = Matrices == 2 ? h : 0, first = t * tile.kRowsOfOne, r = Matrices == 2 ? g : 8 * h + g;
    rows[h] = metal::min(r, w[t].rows - 1);
    codes[h] = stage + (first + rows[h]) * tile.pitch + j * 16;
    scales[h] = tile.scales(stage, t, 0);
    biases[h] = tile.scales(stage, t, 1);
    scalesFrom[h] = w[t].scales;
    biasesFrom[h] = w[t].biases;
  }
  // Odd rows take the second block of a span first, so that two rows are not in the same banks. The columns of a right
  // operand are those of both blocks, two for each unit: a row has its products in those of the block that it took.
  const uint odd = g % 2;
  const bool mine = g / 2 % 2 == j / 2, first = j / 2 == odd;
  threadgroup const uint4* right = (mine ? row.operands + g / 4 * 16 : row.zeros + simdgroup * 16) + j;
  const uint step = mine ? 32 : 0;

  float sums[2] = {0.0f, 0.0f};
  for (uint span = simdgroup; span < spans; span += simdgroups) {
    uint4 own[2][2];
    MLXTS_UNROLL for (uint u = 0; u < 2; ++u) MLXTS_UNROLL for (uint h = 0; h < 2; ++h) own[u][h] =
        *(threadgroup const uint4*)(codes[h] + span * (kSpan / 2) + (u ^ odd) * (kBlock / 2));
    float products[2][4] = {};
    MLXTS_UNROLL for (uint i = 0; i < 4; ++i) {
      const uint4 pairs = right[span * step + 4 * i];
      MLXTS_UNROLL for (uint u = 0; u < 2; ++u) {
        const uint low = own[u][0][i], high = own[u][1][i];
        PairsBf16::multiply_add(products[u], low << 4 & kCodes, high << 4 & kCodes, low & kCodes, high & kCodes,
                                pairs.x, pairs.y);
        PairsBf16::multiply_add(products[u], low >> 4 & kCodes, high >> 4 & kCodes, low >> 8 & kCodes,
                                high >> 8 & kCodes, pairs.z, pairs.w);
      }
    }
    const uint unit = span * kSpanUnits + j, group = metal::min(unit, units - 1) >> shift;
    const float sum = row.sums[unit];
    const float2 power = row.powers[span];
    MLXTS_UNROLL for (uint h = 0; h < 2; ++h) sums[h] =
        metal::fma(tile.number(scales[h], scalesFrom[h], rows[h], group) * power.y,
                   (first ? products[0][2 * h] : products[1][2 * h]) * power.x,
                   metal::fma(tile.number(biases[h], biasesFrom[h], rows[h], group), sum, sums[h]));
  }
  // Lanes j = 0 have the sum of the first row in the end, lanes j = 1 that of the second.
  const float other = metal::simd_shuffle_xor(j % 2 == 0 ? sums[1] : sums[0], ushort(1));
  float both = (j % 2 == 0 ? sums[0] : sums[1]) + other;
  both += metal::simd_shuffle_xor(both, ushort(2));
  if (j < 2) to[8 * j + g] = both;
}

// x times all rows of `tiles`, which says what the rows of a tile are and takes their products:
//   AffineMatrix<S, 4> rows(uint tile, uint matrix), which begins with the tile's first row,
//   void store(uint tile, uint row, float (&products)[Matrices]), for rows of the tile that may be none.
// Of `count` tiles the threadgroup takes number `own` first.
template <typename S, uint Matrices, typename Tiles>
void multiply_tiles(device const bfloat* x, thread const Tiles& tiles, uint count, uint cols, uint groupSize, uint own,
                    uint lane, uint simdgroup) {
  constexpr uint kRowsOfOne = kTileRows / Matrices;
  const uint simdgroups = simdgroups_of_threadgroup(), step = machine::threadgroups().x;
  const uint stages = count > step ? kStages : 1;
  const TileInMemory<S, Matrices> tile(cols, groupSize);
  threadgroup uchar* memory = (threadgroup uchar*)machine::threadgroup_memory();
  RowOfX row((threadgroup uint4*)(memory + stages * tile.bytes()), spans_of(cols), simdgroups);
  threadgroup float* parts = row.free;
  threadgroup ulong* arrivals = (threadgroup ulong*)(parts + 2 * simdgroups * kTileRows);
  const bool brings = simdgroup == simdgroups - 1 && lane == 0;

  if (brings) {
    for (uint s = 0; s < stages; ++s) {
      machine::arrival_begin(arrivals + s);
      if (own + s * step >= count) break;
      AffineMatrix<S, 4> w[Matrices];
      MLXTS_UNROLL for (uint t = 0; t < Matrices; ++t) w[t] = tiles.rows(own + s * step, t);
      bring_tile(tile, memory + s * tile.bytes(), arrivals + s, w);
    }
  }
  threadgroup uint4* zeros = row.zeros + simdgroup * 16;
  if (lane < 16) zeros[lane] = uint4(0);
  threadgroup_barrier(metal::mem_flags::mem_threadgroup);

  // Until here others may still write x.
  machine::wait_for_kernels();
  keep_spans(row, x, cols, lane, simdgroup, simdgroups);
  uint turn = 0;
  for (uint at = own; at < count; at += step) {
    const uint s = turn % stages;
    threadgroup uchar* stage = memory + s * tile.bytes();
    AffineMatrix<S, 4> w[Matrices];
    MLXTS_UNROLL for (uint t = 0; t < Matrices; ++t) w[t] = tiles.rows(at, t);
    threadgroup float* sums = parts + turn % 2 * simdgroups * kTileRows;
    machine::arrival_wait(arrivals + s, turn / stages % 2);
    sum_tile(tile, stage, row, w, sums + simdgroup * kTileRows, lane, simdgroup, simdgroups);
    threadgroup_barrier(metal::mem_flags::mem_threadgroup);
    if (brings && at + stages * step < count) {
      MLXTS_UNROLL for (uint t = 0; t < Matrices; ++t) w[t] = tiles.rows(at + stages * step, t);
      bring_tile(tile, stage, arrivals + s, w);
    }
    const uint r = simdgroup * kSimd + lane;
    if (r < kRowsOfOne) {
      float products[Matrices];
      MLXTS_UNROLL for (uint t = 0; t < Matrices; ++t) {
        products[t] = 0.0f;
#pragma unroll 4
        for (uint i = 0; i < simdgroups; ++i) products[t] += sums[i * kTileRows + t * kRowsOfOne + r];
      }
      tiles.store(at, r, products);
    }
    turn += 1;
  }
}

}  // namespace mlxts
