// One row of x in bf16 against codes of 4 bits on GPUs that copy by themselves (compute capability 9.0): as
// cuda_matvec_row.h has it, with the same sums in the same order, but W comes in tiles of 16 rows, all their columns at
// once, to threadgroup memory. So a threadgroup has whole tiles on their way before it waits for other kernels, and
// needs no registers for them. It takes one tile after another where there are more tiles than threadgroups.
#pragma once
#include "cuda_matvec.h"

namespace mlxts {

constant constexpr uint kStages = 2;  // tiles in threadgroup memory where a threadgroup takes several
constant constexpr uint kPiece = 16;  // bytes that are copied at once
constant constexpr uint kMostSimdgroups = 8;

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
  METAL_FUNC uint scales(uint matrix, uint biases) const thread {
    return codesBytes() + (2 * matrix + biases) * scalesBytes();
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
        machine::arrival_copy(arrival, stage + tile.scales(t, 0), (device const void*)scales.from, scales.bytes);
        machine::arrival_copy(arrival, stage + tile.scales(t, 1), (device const void*)biases.from, biases.bytes);
      }
    }
  }
}

// x of the simdgroup's spans: all of it on its way at once, in the places of the operands that it becomes.
METAL_FUNC void keep_spans(thread const RowOfX& row, device const bfloat* x, uint cols, uint lane, uint simdgroup,
                           uint simdgroups) {
  const uint spans = spans_of(cols);
#pragma unroll 1
  for (uint span = simdgroup; span < spans; span += simdgroups) {
    const uint column = span * kSpan + lane * 8;
    const bool there = column < cols;
    machine::copy_start<16>(row.operands + span * 32 + lane, x + (there ? column : 0), there ? 16 : 0);
  }
  machine::copies_end();
  machine::copies_wait<0>();
#pragma unroll 1
  for (uint span = simdgroup; span < spans; span += simdgroups) {
    const uint4 columns = row.operands[span * 32 + lane];
    simdgroup_barrier(metal::mem_flags::mem_threadgroup);
    keep_columns(row, columns, span, lane);
  }
  simdgroup_barrier(metal::mem_flags::mem_threadgroup);
}

// Where in its stage a lane has what it takes of a tile: of two rows, in bytes. Rows that do not exist are the last one
// again.
template <typename S, uint Matrices>
struct LanePlace {
  uint codes[2], scales[2], biases[2];

  METAL_FUNC LanePlace(TileInMemory<S, Matrices> tile, thread const AffineMatrix<S, 4> (&w)[Matrices], uint lane) thread {
    const uint g = lane / 4, j = lane % 4;
    MLXTS_UNROLL for (uint h = 0; h < 2; ++h) {
      const uint t = Matrices == 2 ? h : 0, r = metal::min(Matrices == 2 ? g : 8 * h + g, w[t].rows - 1);
      // Odd rows take the second block of a span first, so that two rows are not in the same banks.
      codes[h] = (t * tile.kRowsOfOne + r) * tile.pitch + j * 16 + g % 2 * (kBlock / 2);
      scales[h] = tile.scales(t, 0) + uint(ulong(w[t].scales)) % kPiece + r * tile.groups * uint(sizeof(S));
      biases[h] = tile.scales(t, 1) + uint(ulong(w[t].biases)) % kPiece + r * tile.groups * uint(sizeof(S));
    }
  }
};

template <typename S>
METAL_FUNC float number_at(threadgroup const uchar* stage, uint place, uint group) {
  return float(((threadgroup const S*)(stage + place))[group]);
}

// The simdgroup's sums of a tile, of its spans: to[row].
template <typename S, uint Matrices>
METAL_FUNC void sum_tile(thread const LanePlace<S, Matrices>& place, threadgroup const uchar* stage,
                         thread const RowOfX& row, uint cols, uint shift, threadgroup float* to, uint lane,
                         uint simdgroup, uint simdgroups) {
  const uint g = lane / 4, j = lane % 4, spans = spans_of(cols), last = cols / 64 - 1;
  // The columns of a right operand are those of both blocks of a span, two for each unit: a row has its products in
  // those of the block that it took.
  const uint other = g % 2 == 0 ? kBlock / 2 : 0u - kBlock / 2;
  const bool mine = g / 2 % 2 == j / 2, first = j / 2 == g % 2;
  threadgroup const uint4* right = (mine ? row.operands + g / 4 * 16 : row.zeros + simdgroup * 16) + j;
  const uint step = mine ? 32 : 0;

  float sums[2] = {0.0f, 0.0f};
#pragma unroll 1
  for (uint span = simdgroup; span < spans; span += simdgroups) {
    uint4 own[2][2];
    MLXTS_UNROLL for (uint u = 0; u < 2; ++u) MLXTS_UNROLL for (uint h = 0; h < 2; ++h) own[u][h] =
        *(threadgroup const uint4*)(stage + (place.codes[h] + span * (kSpan / 2) + u * other));
    const uint unit = span * kSpanUnits + j, group = metal::min(unit, last) >> shift;
    float scales[2], biases[2];
    MLXTS_UNROLL for (uint h = 0; h < 2; ++h) {
      scales[h] = number_at<S>(stage, place.scales[h], group);
      biases[h] = number_at<S>(stage, place.biases[h], group);
    }
    const float sum = row.sums[unit];
    const float2 power = row.powers[span];
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
    MLXTS_UNROLL for (uint h = 0; h < 2; ++h) {
      const float product = first ? products[0][2 * h] : products[1][2 * h];
      sums[h] = metal::fma(scales[h] * power.y, product * power.x, metal::fma(biases[h], sum, sums[h]));
    }
  }
  // Lanes j = 0 have the sum of the first row in the end, lanes j = 1 that of the second.
  const float rest = metal::simd_shuffle_xor(j % 2 == 0 ? sums[1] : sums[0], ushort(1));
  float both = (j % 2 == 0 ? sums[0] : sums[1]) + rest;
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
  AffineMatrix<S, 4> w[Matrices];
  MLXTS_UNROLL for (uint t = 0; t < Matrices; ++t) w[t] = tiles.rows(own, t);
  LanePlace<S, Matrices> place(tile, w, lane);
  // Known before the wait, and not only when it is needed.
  MLXTS_UNROLL for (uint h = 0; h < 2; ++h) {
    machine::held(place.codes[h]);
    machine::held(place.scales[h]);
    machine::held(place.biases[h]);
  }
  const uint shift = metal::ctz(groupSize / 64), r = simdgroup * kSimd + lane;
  threadgroup_barrier(metal::mem_flags::mem_threadgroup);

  // Until here others may still write x.
  machine::wait_for_kernels();
  keep_spans(row, x, cols, lane, simdgroup, simdgroups);
  uint turn = 0, at = own;
#pragma unroll 1
  while (true) {
    const uint s = turn % stages, next = at + stages * step;
    threadgroup uchar* stage = memory + s * tile.bytes();
    threadgroup float* sums = parts + turn % 2 * simdgroups * kTileRows;
    machine::arrival_wait(arrivals + s, turn / stages % 2);
    sum_tile(place, stage, row, cols, shift, sums + simdgroup * kTileRows, lane, simdgroup, simdgroups);
    threadgroup_barrier(metal::mem_flags::mem_threadgroup);
    if (r < kRowsOfOne) {
      float products[Matrices];
      MLXTS_UNROLL for (uint t = 0; t < Matrices; ++t) {
        products[t] = 0.0f;
        MLXTS_UNROLL for (uint i = 0; i < kMostSimdgroups; ++i) if (i < simdgroups) products[t] +=
            sums[i * kTileRows + t * kRowsOfOne + r];
      }
      tiles.store(at, r, products);
    }
    if (brings && next < count) {
      MLXTS_UNROLL for (uint t = 0; t < Matrices; ++t) w[t] = tiles.rows(next, t);
      bring_tile(tile, stage, arrivals + s, w);
    }
    at += step;
    if (at >= count) break;
    turn += 1;
    MLXTS_UNROLL for (uint t = 0; t < Matrices; ++t) w[t] = tiles.rows(at, t);
    place = LanePlace<S, Matrices>(tile, w, lane);
  }
}

}  // namespace mlxts
