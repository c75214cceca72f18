// What the Metal kernels of the chunk stages share: where a chunk lies, its gates, its rows in threadgroup memory, and
// how the simdgroups of a threadgroup divide the lower triangle of its BT × BT matrices.
#pragma once
#include "block.h"
#include "sequences.h"

namespace mlxts {

// A chunk of one head.
struct ChunkPlace {
  uint head;
  uint slot;    // of all of the call
  ulong token;  // the first
  uint rows;    // real ones; 0 beyond a sequence's end
};

// Slots of chunks in a row of tokens.
template <typename P>
METAL_FUNC uint slots_of(constant P& p, bool packed) {
  return slots_of(packed, p.sequences, p.tokens, p.chunkLength);
}

// Chunk `chunk` of `chunks` of a row of tokens, which cuSeqlens may cut into sequences.
template <typename P>
METAL_FUNC ChunkPlace chunk_place(constant P& p, Indices cuSeqlens, uint chunk, uint chunks, uint head, uint row) {
  Slot at = {row, chunk};
  if (cuSeqlens) at = slot_at(cuSeqlens, chunk, p.sequences, p.tokens, chunks, p.chunkLength);
  const Sequence sequence = sequence_at(cuSeqlens, at.sequence, p.tokens);
  const uint tokens = chunked_tokens(sequence.tokens, p.chunkLength, p.lastTokens);
  return {head, row * chunks + chunk, ulong(sequence.begin) + at.chunk * p.chunkLength,
          chunk_rows(tokens, at.chunk, p.chunkLength)};
}

// The same for a whole threadgroup; no rows where cuSeqlens is wrong, which is reported. `memory` is free again afterwards.
template <typename P>
METAL_FUNC ChunkPlace threadgroup_place(constant P& p, Indices cuSeqlens, uint chunk, uint chunks, uint head, uint row,
                                        FaultSearch search, uint code, threadgroup float* memory, uint index) {
  ChunkPlace place = chunk_place(p, cuSeqlens, chunk, chunks, head, row);
  if (!cuSeqlens) return place;
  const bool right = packed_right(cuSeqlens, p.sequences, p.tokens, search, code);
  const metal::uint2 first = threadgroup_first(metal::uint2(uint(place.token), right ? place.rows : 0),
                                               (threadgroup uint*)memory, index);
  place.token = first.x;
  place.rows = first.y;
  return place;
}

// ln(decay) of a gate; a factor of 0: the gate is the decay itself, and 0 becomes what exp() takes to 0.
METAL_FUNC float log_decay(float gate, float factor) {
  if (factor != 0.0f) return gate * factor;
  return gate > 0.0f ? metal::max(metal::precise::log(gate), -104.0f) : -104.0f;
}

// Cumulated gates of a chunk as pairs in threadgroup memory, zeros for rows that are not real.
struct Gates {
  threadgroup float* hi;
  threadgroup float* lo;
};

METAL_FUNC void stage_gates(Gates to, device const float* sum, device const float* low, bool pair, uint stride,
                            uint rows, uint length, uint index) {
  if (index >= length) return;
  to.hi[index] = index < rows ? sum[index * stride] : 0.0f;
  to.lo[index] = pair && index < rows ? low[index * stride] : 0.0f;
}

// exp(G_i − G_j), for i ≥ j.
METAL_FUNC float decay_between(Gates g, uint i, uint j) {
  return metal::precise::exp((g.hi[i] - g.hi[j]) + (g.lo[i] - g.lo[j]));
}

// exp(hi + lo) with |lo| small: three terms of exp(lo) are all that f32 sees.
METAL_FUNC float exp_pair(float hi, float lo) { return metal::precise::exp(hi) * (1.0f + lo * (1.0f + 0.5f * lo)); }

// Four elements of a row that has `left` > 0 from here on, zeros beyond.
template <typename T>
METAL_FUNC float4 load4_within(device const T* from, uint left) {
  if (left >= 4) return load4(from);
  return float4(float(from[0]), left > 1 ? float(from[1]) : 0.0f, left > 2 ? float(from[2]) : 0.0f, 0.0f);
}

// By reference, since it is at references that the simulator asks for alignment.
template <typename T>
METAL_FUNC void store4_aligned(threadgroup T* to, float4 v) {
  threadgroup metal::vec<T, 4>& four = *(threadgroup metal::vec<T, 4>*)to;
  four = metal::vec<T, 4>(T(v.x), T(v.y), T(v.z), T(v.w));
}

// Rows into threadgroup memory, with zeros up to multiples of eight rows and columns; at most `Columns` of the latter.
template <typename T, uint Columns, uint Stride>
METAL_FUNC void stage_rows(threadgroup T* to, device const T* from, uint stride, uint rows, uint columns, uint index,
                           uint threads) {
  const uint all = (rows + 7) / 8 * 8 * (Columns / 4), end = (columns + 7) / 8 * 8;
  for (uint i = index; i < all; i += threads) {
    const uint row = i / (Columns / 4), column = i % (Columns / 4) * 4;
    if (column >= end) continue;
    float4 v = float4(0.0f);
    if (row < rows && column < columns) v = load4_within(from + row * stride + column, columns - column);
    store4_aligned(to + row * Stride + column, v);
  }
}

// The same, each row times its factor.
template <typename T, uint Columns, uint Stride>
METAL_FUNC void stage_scaled(threadgroup T* to, device const T* from, uint stride, uint rows, uint columns,
                             threadgroup const float* factor, uint index, uint threads) {
  const uint all = (rows + 7) / 8 * 8 * (Columns / 4), end = (columns + 7) / 8 * 8;
  for (uint i = index; i < all; i += threads) {
    const uint row = i / (Columns / 4), column = i % (Columns / 4) * 4;
    if (column >= end) continue;
    float4 v = float4(0.0f);
    if (row < rows && column < columns) v = load4_within(from + row * stride + column, columns - column) * factor[row];
    store4_aligned(to + row * Stride + column, v);
  }
}

// Two rows of blocks of a chunk's lower triangle: s and last − s for simdgroup s, so that each has the same work. A row
// of blocks has that many blocks up to the diagonal, none where no row of it is real.
struct Strips {
  uint low, high;
  uint lowBlocks, highBlocks;
};

METAL_FUNC Strips strips_of(uint simdgroup, uint length, uint rows) {
  const uint high = length / 8 - 1 - simdgroup;
  return {simdgroup, high, simdgroup * 8 < rows ? simdgroup + 1 : 0, high * 8 < rows ? high + 1 : 0};
}

// The blocks of both strips; low[4] and those after are not used.
struct Triangle {
  Block low[8], high[8];
};

METAL_FUNC void clear(thread Triangle& t) {
  MLXTS_UNROLL
  for (uint b = 0; b < 8; ++b) t.low[b] = t.high[b] = block(0.0f, 0.0f);
}

// A block of rows, each times the factor of its row, rounded to T.
template <typename T>
METAL_FUNC Block load_scaled(threadgroup const T* from, uint stride, float factor, BlockLane at) {
  Block b = load_block(from, stride, at);
  return block(float(T(factor * b.thread_elements()[0])), float(T(factor * b.thread_elements()[1])));
}

// Adds the products of the rows of `left`, scaled and rounded, with all rows of `right` up to them.
template <typename T, uint Stride>
METAL_FUNC void add_products(thread Triangle& sum, Strips s, threadgroup const T* left, threadgroup const T* right,
                             uint columns, float lowFactor, float highFactor, BlockLane at) {
  if (s.lowBlocks == 0) return;
  for (uint c = 0; c < columns; c += 8) {
    const Block low = load_scaled(left + s.low * 8 * Stride + c, Stride, lowFactor, at);
    Block high = low;
    if (s.highBlocks) high = load_scaled(left + s.high * 8 * Stride + c, Stride, highFactor, at);
    MLXTS_UNROLL
    for (uint b = 0; b < 8; ++b) {
      if (b >= s.highBlocks && b >= s.lowBlocks) continue;
      const Block other = load_transposed(right + b * 8 * Stride + c, Stride, at);
      if (b < s.highBlocks) multiply_add(sum.high[b], high, other);
      if (b < 4 && b < s.lowBlocks) multiply_add(sum.low[b], low, other);
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
