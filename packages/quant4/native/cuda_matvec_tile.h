// One row of x in bf16 against codes of 4 bits where W has few rows, on GPUs that copy by themselves (compute
// capability 9.0): as cuda_matvec_row.h has it, with the same sums in the same order, but a threadgroup's 16 rows of W
// come with all their columns at once to threadgroup memory. So all of W is on its way before the wait for other
// kernels, and takes no registers. What is left to do after the wait is short: few threadgroups cannot hide how long
// it takes.
#pragma once
#include "cuda_matvec.h"

namespace mlxts {

constant constexpr uint kPiece = 16;  // bytes that are copied at once
constant constexpr uint kMostSimdgroups = QUANTIZED_MATVEC_MOST_SIMDGROUPS;

// A copy of neighboring bytes takes whole pieces, of which the first and the last may hold others'.
struct Pieces {
  ulong from;
  uint bytes;

  METAL_FUNC Pieces(device const void* first, uint count) thread {
    from = ulong(first) / kPiece * kPiece;
    bytes = uint((ulong(first) + count + kPiece - 1) / kPiece * kPiece - from);
  }
  METAL_FUNC void copy(threadgroup ulong* arrival, threadgroup uchar* to) const thread {
    machine::arrival_copy(arrival, to, (device const void*)from, bytes);
  }
};

// Where the tile lies, in bytes from its begin: codes of its rows, then scales and biases.
template <typename S>
struct TileInMemory {
  uint pitch, groups;  // bytes of the codes of a row; groups of a row

  METAL_FUNC uint numbersBytes() const thread {
    return (kTileRows * groups * uint(sizeof(S)) + kPiece - 1) / kPiece * kPiece + kPiece;
  }
  METAL_FUNC uint scales() const thread { return kTileRows * pitch; }
  METAL_FUNC uint biases() const thread { return scales() + numbersBytes(); }
  METAL_FUNC uint end() const thread { return biases() + numbersBytes(); }
};

// One thread brings the first rows of w, or as many as there are.
template <typename S>
METAL_FUNC void bring_tile(TileInMemory<S> tile, threadgroup uchar* to, threadgroup ulong* arrival,
                           AffineMatrix<S, 4> w) {
  const uint rows = metal::min(w.rows, kTileRows), bytes = rows * tile.groups * uint(sizeof(S));
  const Pieces codes(w.words, rows * tile.pitch), scales(w.scales, bytes), biases(w.biases, bytes);
  machine::arrival_expect(arrival, codes.bytes + scales.bytes + biases.bytes);
  codes.copy(arrival, to);
  scales.copy(arrival, to + tile.scales());
  biases.copy(arrival, to + tile.biases());
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

// Where a lane's two rows of the tile are, in bytes. Rows that do not exist are the last one again.
template <typename S>
struct RowsOfLane {
  uint codes[2], scales[2], biases[2];

  METAL_FUNC RowsOfLane(TileInMemory<S> tile, AffineMatrix<S, 4> w, uint lane) thread {
    const uint g = lane / 4, j = lane % 4;
    MLXTS_UNROLL for (uint h = 0; h < 2; ++h) {
      const uint r = metal::min(8 * h + g, w.rows - 1), numbers = r * tile.groups * uint(sizeof(S));
      // Odd rows take the second block of a span first, so that two rows are not in the same banks.
      codes[h] = r * tile.pitch + j * 16 + g % 2 * (kBlock / 2);
      scales[h] = tile.scales() + uint(ulong(w.scales)) % kPiece + numbers;
      biases[h] = tile.biases() + uint(ulong(w.biases)) % kPiece + numbers;
      // Known now, and not only when it is needed.
      machine::held(codes[h]);
      machine::held(scales[h]);
      machine::held(biases[h]);
    }
  }
};

template <typename S>
METAL_FUNC float number_at(threadgroup const uchar* numbers, uint index) {
  return float(((threadgroup const S*)numbers)[index]);
}

// The simdgroup's sums of its spans: to[row].
template <typename S>
METAL_FUNC void sum_tile(threadgroup const uchar* tile, RowsOfLane<S> rows, thread const RowOfX& row, uint cols,
                         uint shift, threadgroup float* to, uint lane, uint simdgroup, uint simdgroups) {
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
        *(threadgroup const uint4*)(tile + (rows.codes[h] + span * (kSpan / 2) + u * other));
    const uint unit = span * kSpanUnits + j, group = metal::min(unit, last) >> shift;
    const float sum = row.sums[unit];
    const float2 power = row.powers[span];
    float scales[2], biases[2];
    MLXTS_UNROLL for (uint h = 0; h < 2; ++h) {
      scales[h] = number_at<S>(tile + rows.scales[h], group);
      biases[h] = number_at<S>(tile + rows.biases[h], group);
    }
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

// A thread's output, if it is one of the first kTileRows; w begins with the first row of the threadgroup.
template <typename S>
METAL_FUNC float tile_product(device const bfloat* x, AffineMatrix<S, 4> w, uint lane, uint simdgroup) {
  const uint simdgroups = simdgroups_of_threadgroup();
  const TileInMemory<S> tile = {w.cols / 2, w.cols >> metal::ctz(w.groupSize)};
  // Copies are faster to where whole cache lines begin.
  threadgroup uchar* own = (threadgroup uchar*)machine::threadgroup_memory();
  RowOfX row((threadgroup uint4*)(own + tile.end()), spans_of(w.cols), simdgroups);
  threadgroup ulong* arrival = (threadgroup ulong*)(row.free + kMostSimdgroups * kTileRows);
  if (simdgroup == simdgroups - 1 && lane == 0) {
    machine::arrival_begin(arrival);
    bring_tile(tile, own, arrival, w);
  }
  threadgroup uint4* zeros = row.zeros + simdgroup * 16;
  if (lane < 16) zeros[lane] = uint4(0);
  const RowsOfLane<S> rows(tile, w, lane);
  threadgroup_barrier(metal::mem_flags::mem_threadgroup);

  // Until here others may still write x.
  machine::wait_for_kernels();
  keep_spans(row, x, w.cols, lane, simdgroup, simdgroups);
  machine::arrival_wait(arrival, 0);
  sum_tile(own, rows, row, w.cols, metal::ctz(w.groupSize / 64), row.free + simdgroup * kTileRows, lane, simdgroup,
           simdgroups);
  threadgroup_barrier(metal::mem_flags::mem_threadgroup);
  // All at once, in an order that does not depend on how many there are.
  float parts[kMostSimdgroups];
  MLXTS_UNROLL for (uint s = 0; s < kMostSimdgroups; ++s) parts[s] = row.free[s * kTileRows + lane % kTileRows];
  float product = 0.0f;
  MLXTS_UNROLL for (uint s = 0; s < kMostSimdgroups; ++s) product += s < simdgroups ? parts[s] : 0.0f;
  return product;
}

}  // namespace mlxts
