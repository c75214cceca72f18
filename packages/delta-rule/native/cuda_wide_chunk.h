// metal_wide_chunk.h in a CUDA translation: chunks of 64 tokens with elements of 16 bits. Tiles are as wide as a key of
// 128, so that a simdgroup multiplies all columns of its strip at once, and all of them are on their way at once.
#pragma once
#include "pieces_cuda.h"
#include "wide_chunk_metal.h"

namespace mlxts {

constant constexpr uint kWide = 128, kWideRows = kStrip * kStrips, kWideThreads = kStrips * kSimd;
constant constexpr uint kWideStride = tile_stride<ushort>(kWide), kWideTile = kWideRows * kWideStride;
constant constexpr uint kPieces = kWide / 8, kWideStep = kWideThreads / kPieces;  // of a row; rows brought at once
typedef TileSum<kStrip, kWide> WideSum;

METAL_FUNC uint left_of(uint columns, uint from) { return columns > from ? columns - from : 0; }

// The first rows and columns of a matrix on their way to a tile [Rows, kWide]; zeros for the others.
template <uint Rows, typename T>
METAL_FUNC void start_wide(threadgroup T* to, device const T* from, uint stride, uint rows, uint columns, uint index) {
  const uint row = index / kPieces, column = index % kPieces * 8;
  MLXTS_UNROLL for (uint i = 0; i < Rows; i += kWideStep) {
    const bool real = row + i < rows && column < columns;
    machine::copy_start<16>(to + (row + i) * kWideStride + column, from + (real ? (row + i) * stride + column : 0),
                            real ? 16 : 0);
  }
}

// A strip of sums, rounded, by way of the strip's own rows of a tile, to rows of device memory.
template <typename T>
METAL_FUNC void store_wide(thread const WideSum& sum, threadgroup T* tile, device T* to, uint stride, uint columns,
                           Strip s) {
  tile += s.first * kWideStride;
  store(sum, tile, kWideStride, s.lane);
  simdgroup_barrier(metal::mem_flags::mem_threadgroup);
  const uint row = s.lane / kPieces, column = s.lane % kPieces * 8;
  MLXTS_UNROLL for (uint i = 0; i < kStrip; i += kSimd / kPieces) {
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

// The same from any address.
template <typename T>
METAL_FUNC void bring_wide(threadgroup T* to, device const T* from, uint stride, uint rows, uint columns, uint index) {
  if (aligned16(from) && stride % 8 == 0) {
    start_wide<kWideRows>(to, from, stride, rows, columns, index);
  } else {
    const uint row = index / kPieces, column = index % kPieces * 8;
    for (uint i = 0; i < kWideRows; i += kWideStep) {
      const bool real = row + i < rows && column < columns;
      for (uint n = 0; n < 8; ++n)
        to[(row + i) * kWideStride + column + n] = real ? from[(row + i) * stride + column + n] : T(0.0f);
    }
  }
  machine::copies_end();
}

// A thread's pieces of a tile, as start_wide brings them, times their rows' factors, rounded.
template <typename T>
METAL_FUNC void scale_wide(threadgroup T* tile, threadgroup const float* factors, uint index) {
  const uint row = index / kPieces;
  tile += row * kWideStride + index % kPieces * 8;
  MLXTS_UNROLL for (uint i = 0; i < kWideRows; i += kWideStep) {
    threadgroup uint4* at = (threadgroup uint4*)(tile + i * kWideStride);
    const float factor = factors[row + i];
    uint4 eight = *at;
    MLXTS_UNROLL for (uint n = 0; n < 4; ++n)
        eight[n] = Pairs<T>::of(Pairs<T>::low(eight[n]) * factor, Pairs<T>::high(eight[n]) * factor);
    *at = eight;
  }
}

// A strip of X up to the diagonal, as the sum of numbers of T.
template <typename T, uint Parts>
struct XParts {
  TileLeft<T, kStrip, kStrip> parts[kStrips][Parts];

  template <typename From>
  METAL_FUNC void load(From x, uint stride, Strip s) {
    MLXTS_UNROLL for (uint j = 0; j < kStrips; ++j) {
      MLXTS_UNROLL for (uint r = 0; r < 2; ++r) {
        MLXTS_UNROLL for (uint c = 0; c < 2; ++c) {
          const uint own = 8 * r + s.row, row = s.first + own, column = j * kStrip + 8 * c + s.column;
          float2 two = float2(0.0f);
          if (j <= s.number && own < s.rows && column <= row) two = *(thread const float2*)(x + row * stride + column);
          if (column + 1 > row) two.y = 0.0f;
          MLXTS_UNROLL for (uint part = 0; part < Parts; ++part) {
            parts[j][part].set(r, c, two.x, two.y);
            two = float2(two.x - parts[j][part].at(r, c, 0), two.y - parts[j][part].at(r, c, 1));
          }
        }
      }
    }
  }
  // X · tile
  METAL_FUNC void multiply(thread WideSum& sum, threadgroup const T* tile, Strip s) const {
    fill(sum, 0.0f);
    MLXTS_UNROLL for (uint j = 0; j < kStrips; ++j) {
      if (j > s.number) continue;
      MLXTS_UNROLL for (uint c = 0; c < kWide; c += 32) {
        TileRight<T, kStrip, 32> right;
        mlxts::load(right, tile + j * kStrip * kWideStride + c, kWideStride);
        MLXTS_UNROLL for (uint part = 0; part < Parts; ++part) multiply_add_columns(sum, c, parts[j][part], right);
      }
    }
  }
};

// A and X are as large as a wide tile each.
constant constexpr uint kXStride = kWideStride / 2;

// A strip of A: (round(β k) · kᵀ) exp(G_i − G_j) below the diagonal, zeros in the rest of its blocks.
template <typename T>
struct WideDots {
  TileSum<kStrip, kWideRows> sums;

  METAL_FUNC void add(threadgroup const T* keys, threadgroup const float* betas, Strip s) {
    const float own[2] = {betas[s.first + s.row], betas[s.first + 8 + s.row]};
    MLXTS_UNROLL for (uint k = 0; k < kWide; k += 16) {
      TileLeft<T, kStrip, 16> left;
      mlxts::load(left, keys + s.first * kWideStride + k, kWideStride);
      scale_rows(left, own);
      MLXTS_UNROLL for (uint j = 0; j < kStrips; ++j) {
        if (j > s.number) continue;
        TileRight<T, 16, kStrip> right;
        load_transposed(right, keys + j * kStrip * kWideStride + k, kWideStride);
        multiply_add_columns(sums, j * kStrip, left, right);
      }
    }
  }
  METAL_FUNC void store(threadgroup float* a, CumulativeGates G, Strip s) const {
    MLXTS_UNROLL for (uint r = 0; r < 2; ++r) {
      const uint own = 8 * r + s.row, row = s.first + own;
      MLXTS_UNROLL for (uint c = 0; c < kWideRows / 8; ++c) {
        if (c / 2 > s.number) continue;
        MLXTS_UNROLL for (uint e = 0; e < 2; ++e) {
          const uint column = 8 * c + s.column + e;
          const bool below = column < row && own < s.rows;
          a[row * kXStride + column] = below ? sums.at(r, c, e) * decay_between(G, row, column) : 0.0f;
        }
      }
    }
  }
};

// The inverse of I + A for a block on the diagonal, by forward substitution: a lane has a column.
METAL_FUNC void invert_block(threadgroup const float* a, threadgroup float* x, uint lane) {
  if (lane >= kStrip) return;
  float own[kStrip];
  MLXTS_UNROLL for (uint i = 0; i < kStrip; ++i) {
    float sum = i == lane ? 1.0f : 0.0f;
    MLXTS_UNROLL for (uint m = 0; m < i; m += 4) {
      const float4 four = *(threadgroup const float4*)(a + i * kXStride + m);
      MLXTS_UNROLL for (uint n = 0; n < 4; ++n) {
        if (m + n < i) sum -= four[n] * own[m + n];
      }
    }
    own[i] = sum;
    x[i * kXStride + lane] = sum;
  }
}

// The blocks of X below one on the diagonal, X_ij = −X_ii Σ A_im X_mj, with all on the diagonal there.
METAL_FUNC void substitute_blocks(threadgroup const float* a, threadgroup float* x, Strip s) {
  constexpr uint kDown = kStrip * kXStride;
  threadgroup float* column = x + s.number * kStrip;
  for (uint i = s.number + 1; i < kStrips; ++i) {
    threadgroup float* to = column + i * kDown;
    TileLeft<float, kStrip, kStrip> left;
    TileRight<float, kStrip, kStrip> right;
    StripSum sum;
    fill(sum, 0.0f);
    for (uint m = s.number; m < i; ++m) {
      load(left, a + i * kDown + m * kStrip, kXStride);
      load(right, column + m * kDown, kXStride);
      multiply_add(sum, left, right);
    }
    store(sum, to, kXStride, s.lane);
    simdgroup_barrier(metal::mem_flags::mem_threadgroup);
    load(left, x + i * (kDown + kStrip), kXStride);
    load(right, to, kXStride);
    fill(sum, 0.0f);
    multiply_add(sum, left, right);
    const float minus[2] = {-1.0f, -1.0f};
    scale_rows(sum, minus);
    simdgroup_barrier(metal::mem_flags::mem_threadgroup);
    store(sum, to, kXStride, s.lane);
    simdgroup_barrier(metal::mem_flags::mem_threadgroup);
  }
}

// A of a chunk, whose first keys are on their way to a tile, before the values; they are there again in the end.
template <typename T>
METAL_FUNC void make_wide_a(WuTensors<T> m, threadgroup T* keys, threadgroup float* a, threadgroup const float* betas,
                            CumulativeGates G, Strip s, uint rows, uint index) {
  WideDots<T> dots;
  fill(dots.sums, 0.0f);
  machine::copies_wait<1>();
  threadgroup_barrier(metal::mem_flags::mem_threadgroup);
  dots.add(keys, betas, s);
  for (uint c = kWide; m.K > kWide && c < m.K + kWide; c += kWide) {
    const uint from = c < m.K ? c : 0;
    threadgroup_barrier(metal::mem_flags::mem_threadgroup);
    bring_wide(keys, m.k + from, m.kStride, rows, m.K - from, index);
    machine::copies_wait<0>();
    threadgroup_barrier(metal::mem_flags::mem_threadgroup);
    if (from > 0) dots.add(keys, betas, s);
  }
  dots.store(a, G, s);
}

// Factors are those of values, then those of keys; then there is room for gates. Without an inverse, X is made here.
template <typename T>
METAL_FUNC void make_wide_wu(WuTensors<T> m, threadgroup T* values, threadgroup float* factors, Strip s, uint rows,
                             uint index) {
  threadgroup T* keys = values + kWideTile;
  threadgroup float *a = (threadgroup float*)(keys + kWideTile), *x = a + kWideRows * kXStride;
  bring_wide(keys, m.k, m.kStride, rows, m.K, index);
  bring_wide(values, m.v, m.vStride, rows, m.V, index);
  const CumulativeGates G = {factors + 2 * kWideRows, factors + 3 * kWideRows};
  if (index < kWideRows) {
    const bool real = index < rows;
    const float beta = real ? m.beta[index * m.betaStride] : 0.0f;
    const float high = real ? m.G.high[index * m.G.stride] : 0.0f;
    const float low = real && m.G.carriesLow ? m.G.low[index * m.G.stride] : 0.0f;
    factors[index] = beta;
    factors[kWideRows + index] = beta * exp_of_sum(high, low);
    G.high[index] = high;
    G.low[index] = low;
  }
  XParts<T, 2> X;
  if (m.x) {
    X.load(m.x, m.xStride, s);
  } else {
    make_wide_a(m, keys, a, factors, G, s, rows, index);
    threadgroup_barrier(metal::mem_flags::mem_threadgroup);
    const uint diagonal = s.first * (kXStride + 1);
    invert_block(a + diagonal, x + diagonal, s.lane);
  }
  for (uint c = 0; c < metal::max(m.V, m.K); c += kWide) {
    if (c > 0) {
      threadgroup_barrier(metal::mem_flags::mem_threadgroup);
      bring_wide(keys, m.k + c, m.kStride, rows, left_of(m.K, c), index);
      bring_wide(values, m.v + c, m.vStride, rows, left_of(m.V, c), index);
    }
    machine::copies_wait<0>();
    if (c == 0 && m.x) threadgroup_barrier(metal::mem_flags::mem_threadgroup);  // factors
    scale_wide(values, factors, index);
    scale_wide(keys, factors + kWideRows, index);
    threadgroup_barrier(metal::mem_flags::mem_threadgroup);
    if (c == 0 && !m.x) {
      substitute_blocks(a, x, s);
      threadgroup_barrier(metal::mem_flags::mem_threadgroup);
      X.load((threadgroup const float*)x, kXStride, s);
    }
    // The strip's rows of A and X are no longer needed.
    WideSum sum;
    X.multiply(sum, values, s);
    store_wide(sum, (threadgroup T*)a, m.u + c, m.vStride, left_of(m.V, c), s);
    X.multiply(sum, keys, s);
    store_wide(sum, (threadgroup T*)x, m.w + c, m.wStride, left_of(m.K, c), s);
  }
}

template <typename T>
METAL_FUNC bool wide_wu(WuTensors<T> m, threadgroup float* tiles, threadgroup float* factors, Strip s, uint rows,
                        uint index) {
  if constexpr (metal::is_same_v<T, bfloat>) {
    if (!m.x || (aligned16(m.v) && aligned16(m.k) && aligned16(m.u) && aligned16(m.w) && aligned16(m.x))) {
      make_wide_wu(m, (threadgroup T*)tiles, factors, s, rows, index);
      return true;
    }
  }
  return false;
}

// Scores of a strip, rounded: (q · kᵀ) exp(G_i − G_j) up to the diagonal.
template <typename T>
METAL_FUNC void make_wide_scores(thread TileLeft<T, kStrip, kWideRows>& scores,
                                 thread const TileLeft<T, kStrip, kWide>& q, threadgroup const T* keys,
                                 CumulativeGates G, Strip s) {
  TileSum<kStrip, kWideRows> sums;
  fill(sums, 0.0f);
  MLXTS_UNROLL for (uint j = 0; j < kStrips; ++j) {
    if (j > s.number) continue;
    MLXTS_UNROLL for (uint k = 0; k < kWide; k += 16) {
      TileRight<T, 16, kStrip> right;
      load_transposed(right, keys + j * kStrip * kWideStride + k, kWideStride);
      multiply_add_columns(sums, j * kStrip, columns_of(q, k / 16), right);
    }
  }
  MLXTS_UNROLL for (uint r = 0; r < 2; ++r) {
    const uint row = s.first + 8 * r + s.row;
    const float high = G.high[row], low = G.low[row];
    MLXTS_UNROLL for (uint c = 0; c < kWideRows / 8; ++c) {
      MLXTS_UNROLL for (uint e = 0; e < 2; ++e) {
        const uint column = 8 * c + s.column + e;
        thread float& score = sums.at(r, c, e);
        if (column > row || row >= s.first + s.rows)
          score = 0.0f;
        else
          score *= metal::precise::exp((high - G.high[column]) + (low - G.low[column]));
      }
    }
  }
  scores = as_left<T>(sums);
}

template <typename T>
METAL_FUNC void make_wide_output(OutputTensors<T> m, threadgroup T* q, CumulativeGates G, Strip s, uint rows,
                                 uint index) {
  threadgroup T *keys = q + kWideTile, *values = keys + kWideTile, *states = values + kWideTile;
  start_wide<kWideRows>(q, m.q, m.keyStride, rows, m.K, index);
  start_wide<kWideRows>(keys, m.k, m.keyStride, rows, m.K, index);
  machine::copies_end();
  if (index < kWideRows) {
    const bool real = index < rows;
    G.high[index] = real ? m.G.high[index * m.G.stride] : 0.0f;
    G.low[index] = real && m.G.carriesLow ? m.G.low[index * m.G.stride] : 0.0f;
  }
  TileLeft<T, kStrip, kWide> queries;
  TileLeft<T, kStrip, kWideRows> scores;
  for (uint v = 0; v < m.V; v += kWide) {
    const uint columns = m.V - v;
    if (v > 0) threadgroup_barrier(metal::mem_flags::mem_threadgroup);
    start_wide<kWide>(states, m.h + ulong(v) * m.K, m.K, columns, m.K, index);
    machine::copies_end();
    start_wide<kWideRows>(values, m.vNew + v, m.valueStride, rows, columns, index);
    machine::copies_end();
    if (v == 0) {
      machine::copies_wait<2>();
      threadgroup_barrier(metal::mem_flags::mem_threadgroup);
      load(queries, q + s.first * kWideStride, kWideStride);
      make_wide_scores(scores, queries, keys, G, s);
    }
    machine::copies_wait<1>();
    threadgroup_barrier(metal::mem_flags::mem_threadgroup);
    WideSum sum;
    fill(sum, 0.0f);
    MLXTS_UNROLL for (uint k = 0; k < kWide; k += 16) {
      MLXTS_UNROLL for (uint c = 0; c < kWide; c += 32) {
        TileRight<T, 16, 32> right;
        load_transposed(right, states + c * kWideStride + k, kWideStride);
        multiply_add_columns(sum, c, columns_of(queries, k / 16), right);
      }
    }
    float decays[2], factors[2];
    MLXTS_UNROLL for (uint r = 0; r < 2; ++r) {
      const uint row = 8 * r + s.row, at = s.first + row;
      decays[r] = exp_of_sum(G.high[at], G.low[at]);
      factors[r] = row < s.rows && (!m.mask || m.mask[at] != 0) ? m.scale : 0.0f;
    }
    scale_rows(sum, decays);
    machine::copies_wait<0>();
    threadgroup_barrier(metal::mem_flags::mem_threadgroup);
    MLXTS_UNROLL for (uint j = 0; j < kStrips; ++j) {
      if (j > s.number) continue;
      MLXTS_UNROLL for (uint c = 0; c < kWide; c += 32) {
        TileRight<T, kStrip, 32> right;
        load(right, values + j * kStrip * kWideStride + c, kWideStride);
        multiply_add_columns(sum, c, columns_of(scores, j), right);
      }
    }
    MLXTS_UNROLL for (uint r = 0; r < 2; ++r) {
      MLXTS_UNROLL for (uint c = 0; c < kWide / 8; ++c) {
        MLXTS_UNROLL for (uint e = 0; e < 2; ++e) {
          thread float& value = sum.at(r, c, e);
          value = factors[r] != 0.0f ? value * factors[r] : 0.0f;
        }
      }
    }
    store_wide(sum, q, m.o + v, m.valueStride, columns, s);  // the strip's queries are in registers
  }
}

template <typename T>
METAL_FUNC bool wide_output(OutputTensors<T> m, threadgroup uchar* tiles, CumulativeGates G, Strip s, uint rows,
                            uint index) {
  if constexpr (sizeof(T) == 2) {
    if (aligned16(m.q) && aligned16(m.k) && aligned16(m.vNew) && aligned16(m.h) && aligned16(m.o)) {
      make_wide_output(m, (threadgroup T*)tiles, G, s, rows, index);
      return true;
    }
  }
  return false;
}

}  // namespace mlxts
