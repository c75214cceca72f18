// What the Metal kernels of the chunk stages share: the chunk of a threadgroup, its cumulative gates, its rows in
// threadgroup memory, and how the simdgroups of a threadgroup divide the lower triangle of its BT × BT matrices.
#pragma once
#include "block.h"
#include "chunk_place.h"

namespace mlxts {

// The chunk of a threadgroup, [slot, head, row of tokens]; no rows where cuSeqlens is wrong, which is reported.
// `agreed` has two words.
template <typename P>
METAL_FUNC ChunkPlace threadgroup_place(constant P& p, Indices cuSeqlens, metal::uint3 group, uint slots,
                                        FaultSearch search, uint code, threadgroup uint* agreed, uint index) {
  ChunkPlace place = chunk_place(p, cuSeqlens, group.x, slots, group.y, group.z);
  if (!cuSeqlens) return place;
  const bool right = packed_right(cuSeqlens, p.sequences, p.tokens, search, code);
  const metal::uint2 first = threadgroup_first(metal::uint2(uint(place.token), right ? place.rows : 0), agreed, index);
  place.token = first.x;
  place.rows = first.y;
  return place;
}

// Two rows of blocks of a chunk's lower triangle: s and last − s for simdgroup s, so that each has the same work. A row
// of blocks has that many blocks up to the diagonal, none where no row of it is real.
struct Strips {
  uint top, bottom;
  uint topBlocks, bottomBlocks;
};

METAL_FUNC Strips strips_of(uint simdgroup, uint length, uint rows) {
  const uint bottom = length / 8 - 1 - simdgroup;
  return {simdgroup, bottom, simdgroup * 8 < rows ? simdgroup + 1 : 0, bottom * 8 < rows ? bottom + 1 : 0};
}

// A thread, and the chunk of its threadgroup.
struct ChunkThread {
  uint index, threads;  // of the threadgroup
  uint lane;
  uint rows, length;  // of the chunk: real ones, and all
  BlockLane at;
  Strips strips;
  uint topRow, bottomRow;  // this lane's rows of the strips
};

METAL_FUNC ChunkThread chunk_thread(uint index, uint threads, uint lane, uint simdgroup, uint rows, uint length) {
  const BlockLane at = block_lane(lane);
  const Strips strips = strips_of(simdgroup, length, rows);
  return {index, threads, lane, rows, length, at, strips, strips.top * 8 + at.row, strips.bottom * 8 + at.row};
}

// G and GLow of a call from one element on, tokens `stride` apart.
struct CumulativeGateTensors {
  device const float* high;
  device const float* low;
  bool carriesLow;  // whether GLow is there
  uint stride;
};

METAL_FUNC CumulativeGateTensors gates_from(CumulativeGateTensors G, ulong element) {
  return {G.high + element, G.low + element, G.carriesLow, G.stride};
}

// G of one chunk and head, high + low, in threadgroup memory; zeros for rows that are not real.
struct CumulativeGates {
  threadgroup float* high;
  threadgroup float* low;
};

METAL_FUNC void stage_gates(CumulativeGates to, CumulativeGateTensors from, ChunkThread t) {
  if (t.index >= t.length) return;
  const bool real = t.index < t.rows;
  to.high[t.index] = real ? from.high[t.index * from.stride] : 0.0f;
  to.low[t.index] = real && from.carriesLow ? from.low[t.index * from.stride] : 0.0f;
}

// exp(G_i − G_j), for i ≥ j.
METAL_FUNC float decay_between(CumulativeGates G, uint i, uint j) {
  return metal::precise::exp((G.high[i] - G.high[j]) + (G.low[i] - G.low[j]));
}

// exp(high + low) with |low| small: three terms of exp(low) are all that f32 sees.
METAL_FUNC float exp_of_sum(float high, float low) {
  return metal::precise::exp(high) * (1.0f + low * (1.0f + 0.5f * low));
}

// exp(G) of one row.
METAL_FUNC float decay_at(CumulativeGateTensors G, uint row) {
  return exp_of_sum(G.high[row * G.stride], G.carriesLow ? G.low[row * G.stride] : 0.0f);
}

// Four elements of a row that has `left` > 0 from here on, zeros beyond.
template <typename T>
METAL_FUNC float4 load4_within(device const T* from, uint left) {
  if (left >= 4) return load4(from);
  return float4(float(from[0]), left > 1 ? float(from[1]) : 0.0f, left > 2 ? float(from[2]) : 0.0f, 0.0f);
}

template <typename T>
METAL_FUNC float4 load4_aligned(threadgroup const T* from) {
  threadgroup const metal::vec<T, 4>& four = *(threadgroup const metal::vec<T, 4>*)from;
  return float4(float(four.x), float(four.y), float(four.z), float(four.w));
}

// By reference, since it is at references that the simulator asks for alignment.
template <typename T>
METAL_FUNC void store4_aligned(threadgroup T* to, float4 v) {
  threadgroup metal::vec<T, 4>& four = *(threadgroup metal::vec<T, 4>*)to;
  four = metal::vec<T, 4>(T(v.x), T(v.y), T(v.z), T(v.w));
}

// Rows into threadgroup memory, with zeros up to multiples of eight rows and columns; at most `Columns` of the latter.
template <typename T, uint Columns, uint Stride>
METAL_FUNC void stage_rows(threadgroup T* to, device const T* from, uint stride, uint rows, uint columns,
                           ChunkThread t) {
  const uint all = (rows + 7) / 8 * 8 * (Columns / 4), end = (columns + 7) / 8 * 8;
  for (uint i = t.index; i < all; i += t.threads) {
    const uint row = i / (Columns / 4), column = i % (Columns / 4) * 4;
    if (column >= end) continue;
    float4 v = float4(0.0f);
    if (row < rows && column < columns) v = load4_within(from + row * stride + column, columns - column);
    store4_aligned(to + row * Stride + column, v);
  }
}

// The same of a chunk's rows, each times its factor.
template <typename T, uint Columns, uint Stride>
METAL_FUNC void stage_scaled(threadgroup T* to, device const T* from, uint stride, uint columns,
                             threadgroup const float* factors, ChunkThread t) {
  const uint all = (t.rows + 7) / 8 * 8 * (Columns / 4), end = (columns + 7) / 8 * 8;
  for (uint i = t.index; i < all; i += t.threads) {
    const uint row = i / (Columns / 4), column = i % (Columns / 4) * 4;
    if (column >= end) continue;
    float4 v = float4(0.0f);
    if (row < t.rows && column < columns)
      v = load4_within(from + row * stride + column, columns - column) * factors[row];
    store4_aligned(to + row * Stride + column, v);
  }
}

// The blocks of both strips; top[4] and those after are not used.
struct Triangle {
  Block top[8], bottom[8];
};

METAL_FUNC void clear(thread Triangle& t) {
  MLXTS_UNROLL
  for (uint b = 0; b < 8; ++b) t.top[b] = t.bottom[b] = block(0.0f, 0.0f);
}

// A block of rows, each times the factor of its row, rounded to T.
template <typename T>
METAL_FUNC Block load_scaled(threadgroup const T* from, uint stride, float factor, BlockLane at) {
  Block b = load_block(from, stride, at);
  return block(float(T(factor * b.thread_elements()[0])), float(T(factor * b.thread_elements()[1])));
}

// Adds the products of the strips' rows of `left`, scaled and rounded, with all rows of `right` up to them.
template <typename T, uint Stride>
METAL_FUNC void add_products(thread Triangle& sum, threadgroup const T* left, threadgroup const T* right, uint columns,
                             float topFactor, float bottomFactor, ChunkThread t) {
  const Strips s = t.strips;
  if (s.topBlocks == 0) return;
  for (uint c = 0; c < columns; c += 8) {
    const Block top = load_scaled(left + s.top * 8 * Stride + c, Stride, topFactor, t.at);
    Block bottom = top;
    if (s.bottomBlocks) bottom = load_scaled(left + s.bottom * 8 * Stride + c, Stride, bottomFactor, t.at);
    MLXTS_UNROLL
    for (uint b = 0; b < 8; ++b) {
      if (b >= s.bottomBlocks && b >= s.topBlocks) continue;
      const Block other = load_transposed(right + b * 8 * Stride + c, Stride, t.at);
      if (b < s.bottomBlocks) multiply_add(sum.bottom[b], bottom, other);
      if (b < 4 && b < s.topBlocks) multiply_add(sum.top[b], top, other);
    }
  }
}

// A block's row times `scale`, as far as the matrix goes; zeros for a row that is not `kept`.
template <typename T>
METAL_FUNC void store_row(device T* to, uint stride, uint row, uint rows, uint column, uint columns, Block b,
                          float scale, bool kept) {
  if (row >= rows) return;
  for (uint e = 0; e < 2; ++e)
    if (column + e < columns) to[row * stride + column + e] = T(kept ? b.thread_elements()[e] * scale : 0.0f);
}

}  // namespace mlxts
