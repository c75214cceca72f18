// w and u of whole chunks in bf16 on NVIDIA's GPUs, and X where it is not there.
#pragma once
#include "wide_tiles_cuda.h"

namespace mlxts {

// Two simdgroups share a strip of w and u: each has half of the columns.
constant constexpr uint kWuThreads = 2 * kWideThreads, kHalf = kWide / 2;
typedef TileSum<kStrip, kHalf> HalfSum;

// start_wide by all threads of w and u, from any address.
template <typename T>
METAL_FUNC void bring_wide(threadgroup T* to, device const T* from, uint stride, uint rows, uint columns, uint index) {
  if (aligned16(from) && stride % 8 == 0) {
    start_wide<kWideRows, kWuThreads>(to, from, stride, rows, columns, index);
  } else {
    for (uint at = index; at < kWideRows * kWide; at += kWuThreads) {
      const uint row = at / kWide, column = at % kWide;
      to[row * kWideStride + column] = row < rows && column < columns ? from[row * stride + column] : T(0.0f);
    }
  }
  machine::copies_end();
}

// The rows of a tile times their factors, rounded.
template <uint Threads, typename T>
METAL_FUNC void scale_wide(threadgroup T* tile, threadgroup const float* factors, uint index) {
  const uint row = index / kPieces;
  tile += row * kWideStride + index % kPieces * 8;
  MLXTS_UNROLL for (uint i = 0; i < kWideRows; i += Threads / kPieces) {
    threadgroup uint4* at = (threadgroup uint4*)(tile + i * kWideStride);
    const float factor = factors[row + i];
    uint4 eight = *at;
    MLXTS_UNROLL for (uint n = 0; n < 4; ++n)
        eight[n] = Pairs<T>::of(Pairs<T>::low(eight[n]) * factor, Pairs<T>::high(eight[n]) * factor);
    *at = eight;
  }
}

// u = X · round(β v), w = X · round(β exp(G) k). Elements from token to token.
struct WuTensors {
  device const bfloat *v, *k;
  device const float *x, *beta;
  device bfloat *u, *w;
  CumulativeGateTensors G;
  uint V, K, vStride, kStride, wStride, xStride, betaStride;
};

// A strip of X up to the diagonal, as the sum of numbers of T.
template <typename T, uint Parts>
struct XParts {
  TileLeft<T, kStrip, kStrip> parts[kStrips][Parts];

  // Neighbors are `aligned`, or may be anywhere.
  template <typename From>
  METAL_FUNC void load(From x, uint stride, Strip s, bool aligned) {
    MLXTS_UNROLL for (uint j = 0; j < kStrips; ++j) {
      MLXTS_UNROLL for (uint r = 0; r < 2; ++r) {
        MLXTS_UNROLL for (uint c = 0; c < 2; ++c) {
          const uint own = 8 * r + s.row, row = s.first + own, column = j * kStrip + 8 * c + s.column;
          float2 two = float2(0.0f);
          if (j <= s.number && own < s.rows && column <= row) {
            const From at = x + row * stride + column;
            two = aligned ? *(thread const float2*)at : float2(at[0], at[1]);
          }
          if (column + 1 > row) two.y = 0.0f;
          MLXTS_UNROLL for (uint part = 0; part < Parts; ++part) {
            parts[j][part].set(r, c, two.x, two.y);
            two = float2(two.x - parts[j][part].at(r, c, 0), two.y - parts[j][part].at(r, c, 1));
          }
        }
      }
    }
  }
  // X · half of a tile
  METAL_FUNC void multiply(thread HalfSum& sum, threadgroup const T* tile, Strip s) const {
    fill(sum, 0.0f);
    MLXTS_UNROLL for (uint j = 0; j < kStrips; ++j) {
      if (j > s.number) continue;
      MLXTS_UNROLL for (uint c = 0; c < kHalf; c += 32) {
        TileRight<T, kStrip, 32> right;
        mlxts::load(right, tile + j * kStrip * kWideStride + c, kWideStride);
        MLXTS_UNROLL for (uint part = 0; part < Parts; ++part) multiply_add_columns(sum, c, parts[j][part], right);
      }
    }
  }
};

// A and X are as large as a wide tile each.
constant constexpr uint kXStride = kWideStride / 2;

// Every other block of a strip of A: (round(β k) · kᵀ) exp(G_i − G_j) below the diagonal, zeros in a block's rest.
template <typename T>
struct WideDots {
  StripSum sums[kStrips / 2];

  METAL_FUNC void add(threadgroup const T* keys, threadgroup const float* betas, uint half, Strip s) {
    const float own[2] = {betas[s.first + s.row], betas[s.first + 8 + s.row]};
    MLXTS_UNROLL for (uint k = 0; k < kWide; k += 16) {
      TileLeft<T, kStrip, 16> left;
      mlxts::load(left, keys + s.first * kWideStride + k, kWideStride);
      scale_rows(left, own);
      MLXTS_UNROLL for (uint n = 0; n < kStrips / 2; ++n) {
        const uint j = 2 * n + half;
        if (j > s.number) continue;
        TileRight<T, 16, kStrip> right;
        load_transposed(right, keys + j * kStrip * kWideStride + k, kWideStride);
        multiply_add(sums[n], left, right);
      }
    }
  }
  METAL_FUNC void store(threadgroup float* a, CumulativeGates G, uint half, Strip s) const {
    MLXTS_UNROLL for (uint n = 0; n < kStrips / 2; ++n) {
      const uint j = 2 * n + half;
      if (j > s.number) continue;
      MLXTS_UNROLL for (uint i = 0; i < kElements; ++i) {
        const Element at = element_of(i, s);
        const uint row = s.first + at.row, column = j * kStrip + at.column;
        const bool below = column < row && at.row < s.rows;
        a[row * kXStride + column] = below ? sums[n].at(at.r, at.c, at.e) * decay_between(G, row, column) : 0.0f;
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

// sum += the product of blocks of A and X, or of X.
METAL_FUNC void add_blocks(thread StripSum& sum, threadgroup const float* left, threadgroup const float* right) {
  TileLeft<float, kStrip, kStrip> x;
  TileRight<float, kStrip, kStrip> y;
  load(x, left, kXStride);
  load(y, right, kXStride);
  multiply_add(sum, x, y);
}
METAL_FUNC void store_minus(thread StripSum& sum, threadgroup float* to, uint lane) {
  const float minus[2] = {-1.0f, -1.0f};
  scale_rows(sum, minus);
  store(sum, to, kXStride, lane);
}

// The blocks of X below those on the diagonal, which are there. Of halves, X_10 = −X_11 (A_10 X_00), after the same of
// quarters; A_10 X_00 stands transposed by blocks where X is zero.
METAL_FUNC void substitute_blocks(threadgroup const float* a, threadgroup float* x, uint simdgroup, uint lane) {
  constexpr uint kDown = kStrip * kXStride;
  const uint i = simdgroup % 2, role = simdgroup / 2, lower = (2 + i) * kDown;
  threadgroup float* product = x + (2 + i) * kStrip;
  StripSum sum;
  fill(sum, 0.0f);
  if (role == 0) {
    const uint on = 2 * i * (kDown + kStrip), below = on + kDown;
    add_blocks(sum, a + below, x + on);
    store(sum, x + below, kXStride, lane);
    simdgroup_barrier(metal::mem_flags::mem_threadgroup);
    fill(sum, 0.0f);
    add_blocks(sum, x + below + kStrip, x + below);
    simdgroup_barrier(metal::mem_flags::mem_threadgroup);
    store_minus(sum, x + below, lane);
  } else if (role == 1) {
    add_blocks(sum, a + lower + kStrip, x + kDown + kStrip);
    store(sum, product + kDown, kXStride, lane);
  } else if (role == 2) {
    add_blocks(sum, a + lower, x);
  }
  threadgroup_barrier(metal::mem_flags::mem_threadgroup);
  if (role == 2) {
    add_blocks(sum, a + lower + kStrip, x + kDown);
    store(sum, product, kXStride, lane);
  }
  threadgroup_barrier(metal::mem_flags::mem_threadgroup);
  if (role < 2) {
    fill(sum, 0.0f);
    for (uint m = 0; m <= i; ++m) add_blocks(sum, x + lower + (2 + m) * kStrip, x + role * kDown + (2 + m) * kStrip);
    store_minus(sum, x + lower + role * kStrip, lane);
  }
  threadgroup_barrier(metal::mem_flags::mem_threadgroup);
}

// A of a chunk, whose first keys are on their way to a tile, as the values are to another; both are there in the end.
METAL_FUNC void make_wide_a(WuTensors m, threadgroup bfloat* keys, threadgroup float* a, threadgroup const float* betas,
                            CumulativeGates G, uint half, Strip s, uint rows, uint index) {
  WideDots<bfloat> dots;
  MLXTS_UNROLL for (uint n = 0; n < kStrips / 2; ++n) fill(dots.sums[n], 0.0f);
  machine::copies_wait<1>();
  threadgroup_barrier(metal::mem_flags::mem_threadgroup);
  dots.add(keys, betas, half, s);
  for (uint c = kWide; m.K > kWide && c < m.K + kWide; c += kWide) {
    const uint from = c < m.K ? c : 0;
    threadgroup_barrier(metal::mem_flags::mem_threadgroup);
    bring_wide(keys, m.k + from, m.kStride, rows, m.K - from, index);
    machine::copies_wait<0>();
    threadgroup_barrier(metal::mem_flags::mem_threadgroup);
    if (from > 0) dots.add(keys, betas, half, s);
  }
  dots.store(a, G, half, s);
  machine::copies_wait<0>();
  threadgroup_barrier(metal::mem_flags::mem_threadgroup);
}

// Factors are those of values, then those of keys; then there is room for gates. Without an inverse, X is made here.
// Simdgroups whose numbers differ by four have strips that are as long together as those of others.
METAL_FUNC void make_wide_wu(WuTensors m, threadgroup bfloat* values, threadgroup float* factors, uint rows, uint index,
                             uint lane, uint simdgroup) {
  const uint half = simdgroup / kStrips, number = simdgroup % kStrips;
  const Strip s = strip_of(half == 0 ? number : kStrips - 1 - number, lane, rows);
  threadgroup bfloat* keys = values + kWideTile;
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
  XParts<bfloat, 2> X;
  if (m.x) {
    X.load(m.x, m.xStride, s, aligned16(m.x));
  } else {
    make_wide_a(m, keys, a, factors, G, half, s, rows, index);
    const uint diagonal = s.first * (kXStride + 1);
    if (half == 0) {
      invert_block(a + diagonal, x + diagonal, lane);
    } else {
      scale_wide<kWideThreads>(values, factors, index - kWideThreads);
      scale_wide<kWideThreads>(keys, factors + kWideRows, index - kWideThreads);
    }
    threadgroup_barrier(metal::mem_flags::mem_threadgroup);
    substitute_blocks(a, x, simdgroup, lane);
    X.load((threadgroup const float*)x, kXStride, s, true);
  }
  for (uint c = 0; c < metal::max(m.V, m.K); c += kWide) {
    if (c > 0) {
      threadgroup_barrier(metal::mem_flags::mem_threadgroup);
      bring_wide(keys, m.k + c, m.kStride, rows, left_of(m.K, c), index);
      bring_wide(values, m.v + c, m.vStride, rows, left_of(m.V, c), index);
    }
    if (c > 0 || m.x) {
      machine::copies_wait<0>();
      threadgroup_barrier(metal::mem_flags::mem_threadgroup);
      scale_wide<kWuThreads>(values, factors, index);
      scale_wide<kWuThreads>(keys, factors + kWideRows, index);
      threadgroup_barrier(metal::mem_flags::mem_threadgroup);
    }
    // A is no longer needed.
    threadgroup bfloat* own = (threadgroup bfloat*)a + half * kHalf;
    const uint column = c + half * kHalf;
    HalfSum sum;
    X.multiply(sum, values + half * kHalf, s);
    store_wide(sum, own, m.u + column, m.vStride, left_of(m.V, column), s);
    X.multiply(sum, keys + half * kHalf, s);
    simdgroup_barrier(metal::mem_flags::mem_threadgroup);
    store_wide(sum, own, m.w + column, m.wStride, left_of(m.K, column), s);
  }
}

}  // namespace mlxts
