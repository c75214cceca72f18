// w and u of a chunk of up to 64 tokens where warpgroups multiply, from keys, values and gates alone: a warpgroup has a
// chunk of a head, a simdgroup a strip of its rows. Four threadgroups share a multiprocessor, and wait beside each
// other.
#pragma once
#include "warpgroup_strips_cuda.h"
#include "wide_wu_cuda.h"

namespace mlxts {

typedef TileLeft<bfloat, kStrip, kStrip> BlockLeft;
typedef TileRight<bfloat, kStrip, kStrip> BlockRight;

// A block as the sum of two of bf16: what both leave of an f32 is less than 2^-16 of it.
struct SplitLeft {
  BlockLeft high, low;

  SplitLeft() = default;
  METAL_FUNC explicit SplitLeft(thread const StripSum& sum) {
    high = as_left<bfloat>(sum);
    MLXTS_UNROLL for (uint r = 0; r < 2; ++r) {
      MLXTS_UNROLL for (uint c = 0; c < 2; ++c)
          low.set(r, c, sum.at(r, c, 0) - high.at(r, c, 0), sum.at(r, c, 1) - high.at(r, c, 1));
    }
  }
};
struct SplitRight {
  BlockRight high, low;
};
METAL_FUNC void add_split(thread StripSum& sum, thread const SplitLeft& left, thread const SplitRight& right) {
  multiply_add(sum, left.low, right.high);
  multiply_add(sum, left.high, right.low);
  multiply_add(sum, left.high, right.high);
}

// Blocks of A below the diagonal; on it and above it blocks of Xᵀ.
constant constexpr uint kSplitStride = tile_stride<bfloat>(kWideRows);
struct SplitTile {
  threadgroup bfloat *high, *low;

  METAL_FUNC SplitTile block(uint row, uint column) const thread {
    const uint at = (row * kSplitStride + column) * kStrip;
    return {high + at, low + at};
  }
  METAL_FUNC SplitLeft left() const thread {
    SplitLeft left;
    load(left.high, high, kSplitStride);
    load(left.low, low, kSplitStride);
    return left;
  }
  METAL_FUNC SplitLeft left_transposed() const thread {
    SplitLeft left;
    load_transposed(left.high, high, kSplitStride);
    load_transposed(left.low, low, kSplitStride);
    return left;
  }
  METAL_FUNC SplitRight right() const thread {
    SplitRight right;
    load(right.high, high, kSplitStride);
    load(right.low, low, kSplitStride);
    return right;
  }
  METAL_FUNC SplitRight right_transposed() const thread {
    SplitRight right;
    load_transposed(right.high, high, kSplitStride);
    load_transposed(right.low, low, kSplitStride);
    return right;
  }
  METAL_FUNC void store(thread const SplitLeft& block) const thread {
    machine::store_matrices((threadgroup bfloat*)own_row<bfloat>(high, kSplitStride), block.high.blocks[0][0]);
    machine::store_matrices((threadgroup bfloat*)own_row<bfloat>(low, kSplitStride), block.low.blocks[0][0]);
  }
};

// Threadgroup memory: values and keys, two panels each; A and X; the blocks of A on the diagonal, transposed; a factor
// for each value and each key, and the gates.
struct WuMemory {
  enum : uint { kSplit = kWideRows * kSplitStride, kDiagonal = kStrip * kStrip };
  threadgroup uchar *values, *keys;
  SplitTile matrix;
  threadgroup float *diagonal, *factors;
  CumulativeGates G;

  METAL_FUNC WuMemory(threadgroup float* tiles, threadgroup float* factors)
      : values((threadgroup uchar*)tiles), keys(values + kPanelTile),
        matrix({(threadgroup bfloat*)(keys + kPanelTile), (threadgroup bfloat*)(keys + kPanelTile) + kSplit}),
        diagonal((threadgroup float*)(matrix.low + kSplit)), factors(factors),
        G({factors + 2 * kWideRows, factors + 3 * kWideRows}) {}
};

// The rows of a tile times their factors, rounded. A thread has the pieces that it brought.
METAL_FUNC void scale_panels(threadgroup uchar* tile, threadgroup const float* factors, uint index) {
  typedef Pairs<bfloat> P;
  const uint row = index / 8;
  tile += panel_piece(row, index % 8);
  MLXTS_UNROLL for (uint i = 0; i < kWideRows; i += kPanelRows) {
    const float factor = factors[row + i];
    MLXTS_UNROLL for (uint half = 0; half < 2; ++half) {
      threadgroup uint4* at = (threadgroup uint4*)(tile + half * kPanelBytes + i * kPanelRow);
      uint4 eight = *at;
      MLXTS_UNROLL for (uint n = 0; n < 4; ++n)
          eight[n] = P::of(P::low(eight[n]) * factor, P::high(eight[n]) * factor);
      *at = eight;
    }
  }
}

// A strip of A: (round(β k) · kᵀ) exp(G_i − G_j) below the diagonal.
METAL_FUNC void make_strip_of_a(WuMemory memory, Strip s) {
  TileSum<kStrip, kWideRows> sums;
  TileLeft<bfloat, kStrip, kWide> left;
  const float betas[2] = {memory.factors[s.first + s.row], memory.factors[s.first + 8 + s.row]};
  load_strip(left, memory.keys, s);
  scale_rows(left, betas);
  machine::held(left.blocks[0]);
  start_dots(sums, left, memory.keys);
  machine::warpgroup_wait<0>();
  machine::held(sums.blocks[0]);
  machine::held(left.blocks[0]);
  threadgroup float* diagonal = memory.diagonal + s.number * WuMemory::kDiagonal;
  MLXTS_UNROLL for (uint j = 0; j < kStrips; ++j) {
    if (j > s.number) continue;
    StripSum block;
    MLXTS_UNROLL for (uint i = 0; i < kElements; ++i) {
      const Element at = element_of(i, s);
      const uint row = s.first + at.row, column = j * kStrip + at.column;
      const bool below = column < row && at.row < s.rows;
      const float sum = sums.at(at.r, 2 * j + at.c, at.e);
      const float value = below ? sum * decay_between(memory.G, row, column) : 0.0f;
      block.at(at.r, at.c, at.e) = value;
      if (j == s.number) diagonal[at.column * kStrip + at.row] = value;
    }
    if (j < s.number) memory.matrix.block(s.number, j).store(SplitLeft(block));
  }
}

// The inverse of I + A for a block on the diagonal, by substitution, both transposed: a lane has a row.
METAL_FUNC void invert_diagonal(threadgroup const float* a, SplitTile x, uint lane) {
  typedef Pairs<bfloat> P;
  if (lane >= kStrip) return;
  float own[kStrip];
  MLXTS_UNROLL for (uint i = 0; i < kStrip; ++i) own[i] = i == lane ? 1.0f : 0.0f;
  MLXTS_UNROLL for (uint m = 0; m + 1 < kStrip; ++m) {
    MLXTS_UNROLL for (uint i = m / 4 * 4; i < kStrip; i += 4) {
      const float4 four = *(threadgroup const float4*)(a + m * kStrip + i);
      MLXTS_UNROLL for (uint n = 0; n < 4; ++n) {
        if (i + n > m) own[i + n] = metal::fma(-four[n], own[m], own[i + n]);
      }
    }
  }
  MLXTS_UNROLL for (uint i = 0; i < kStrip; i += 8) {
    uint4 high, low;
    MLXTS_UNROLL for (uint n = 0; n < 4; ++n) {
      const float one = own[i + 2 * n], two = own[i + 2 * n + 1];
      const uint both = P::of(one, two);
      high[n] = both;
      low[n] = P::of(one - P::low(both), two - P::high(both));
    }
    *(threadgroup uint4*)(x.high + lane * kSplitStride + i) = high;
    *(threadgroup uint4*)(x.low + lane * kSplitStride + i) = low;
  }
}

// A column of blocks of X, transposed, below the one on the diagonal: X_ic = −X_ii Σ A_im X_mc over c ≤ m < i.
METAL_FUNC void substitute_column(SplitTile matrix, uint c) {
  const float minus[2] = {-1.0f, -1.0f};
  SplitLeft own[kStrips];
  own[0] = matrix.block(c, c).left();
  MLXTS_UNROLL for (uint d = 1; d < kStrips; ++d) {
    if (c + d >= kStrips) continue;
    StripSum sum;
    fill(sum, 0.0f);
    MLXTS_UNROLL for (uint m = 0; m < d; ++m)
        add_split(sum, own[m], matrix.block(c + d, c + m).right_transposed());
    const SplitLeft sums(sum);
    fill(sum, 0.0f);
    add_split(sum, sums, matrix.block(c + d, c + d).right());
    scale_rows(sum, minus);
    own[d] = SplitLeft(sum);
    matrix.block(c, c + d).store(own[d]);
  }
}

// X · a tile, begun.
METAL_FUNC void start_product(thread TileSum<kStrip, kWide>& sum, thread const SplitLeft (&X)[kStrips],
                              threadgroup const uchar* tile) {
  fill(sum, 0.0f);
  machine::held(sum.blocks[0]);
  machine::warpgroup_begin();
  const ulong rows = machine::warpgroup_rows(tile, kPanelBytes);
  MLXTS_UNROLL for (uint j = 0; j < kStrips; ++j) {
    const ulong at = rows + j * (kStrip * kPanelRow >> 4);
    machine::warpgroup_bf16_k16_rows(sum.blocks[0], X[j].low.blocks[0][0], at);
    machine::warpgroup_bf16_k16_rows(sum.blocks[0], X[j].high.blocks[0][0], at);
  }
  machine::warpgroup_end();
}

METAL_FUNC void make_warpgroup_wu(WuTensors m, WuMemory memory, uint rows, uint index, uint lane, uint simdgroup) {
  const Strip s = strip_of(simdgroup, lane, rows);
  const bool real = index < rows;
  const float beta = real ? m.beta[index * m.betaStride] : 0.0f;
  const float high = real ? m.G.high[index * m.G.stride] : 0.0f;
  const float low = real && m.G.carriesLow ? m.G.low[index * m.G.stride] : 0.0f;
  start_panels(memory.keys, m.k, m.kStride, rows, m.K, index);
  machine::copies_end();
  start_panels(memory.values, m.v, m.vStride, rows, m.V, index);
  machine::copies_end();
  if (index < kWideRows) {
    memory.factors[index] = beta;
    memory.factors[kWideRows + index] = beta * exp_of_sum(high, low);
    memory.G.high[index] = high;
    memory.G.low[index] = low;
  }
  machine::copies_wait<1>();
  machine::warpgroup_operands_written();
  threadgroup_barrier(metal::mem_flags::mem_threadgroup);
  make_strip_of_a(memory, s);
  threadgroup_barrier(metal::mem_flags::mem_threadgroup);
  machine::copies_wait<0>();
  scale_panels(memory.values, memory.factors, index);
  scale_panels(memory.keys, memory.factors + kWideRows, index);
  invert_diagonal(memory.diagonal + s.number * WuMemory::kDiagonal, memory.matrix.block(s.number, s.number), lane);
  machine::warpgroup_operands_written();
  threadgroup_barrier(metal::mem_flags::mem_threadgroup);
  substitute_column(memory.matrix, s.number);
  threadgroup_barrier(metal::mem_flags::mem_threadgroup);
  SplitLeft X[kStrips];
  MLXTS_UNROLL for (uint j = 0; j < kStrips; ++j) {
    if (j <= s.number) {
      X[j] = memory.matrix.block(j, s.number).left_transposed();
    } else {
      const StripSum none = {};
      X[j] = SplitLeft(none);
    }
  }
  MLXTS_UNROLL for (uint j = 0; j < kStrips; ++j) {
    machine::held(X[j].high.blocks[0][0]);
    machine::held(X[j].low.blocks[0][0]);
  }
  threadgroup_barrier(metal::mem_flags::mem_threadgroup);  // A and X are no longer needed
  TileSum<kStrip, kWide> sum;
  start_product(sum, X, memory.values);
  threadgroup bfloat* staged = memory.matrix.high + s.first * kWideStride;
  machine::warpgroup_wait<0>();
  machine::held(sum.blocks[0]);
  stage_strip(sum, staged);
  start_product(sum, X, memory.keys);
  simdgroup_barrier(metal::mem_flags::mem_threadgroup);
  take_strip(m.u, staged, m.vStride, m.V, s);
  machine::warpgroup_wait<0>();
  machine::held(sum.blocks[0]);
  simdgroup_barrier(metal::mem_flags::mem_threadgroup);
  stage_strip(sum, staged);
  simdgroup_barrier(metal::mem_flags::mem_threadgroup);
  take_strip(m.w, staged, m.wStride, m.K, s);
}

}  // namespace mlxts
