// metal_wide_chunk.h in a CUDA translation: a simdgroup multiplies all columns of its strip at once.
#pragma once
#include "wide_chunk_metal.h"
#include "wide_tiles_cuda.h"

namespace mlxts {

typedef TileSum<kStrip, kWide> WideSum;

// Scores of a strip, rounded: its products with keys times exp(G_i − G_j) up to the diagonal.
template <typename T>
METAL_FUNC void decay_scores(thread TileLeft<T, kStrip, kWideRows>& scores,
                            thread const TileSum<kStrip, kWideRows>& dots, CumulativeGates G, Strip s) {
  MLXTS_UNROLL for (uint r = 0; r < 2; ++r) {
    const uint row = s.first + 8 * r + s.row;
    const float high = G.high[row], low = G.low[row];
    MLXTS_UNROLL for (uint c = 0; c < kWideRows / 8; ++c) {
      float two[2] = {0.0f, 0.0f};
      if (c / 2 <= s.number) {
        MLXTS_UNROLL for (uint e = 0; e < 2; ++e) {
          const uint column = 8 * c + s.column + e;
          const float decay = metal::precise::exp((high - G.high[column]) + (low - G.low[column]));
          if (column <= row && row < s.first + s.rows) two[e] = dots.at(r, c, e) * decay;
        }
      }
      scores.set(r, c, two[0], two[1]);
    }
  }
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
  decay_scores(scores, sums, G, s);
}

// Rows of queries divided by their norms, and rounded.
template <typename T>
METAL_FUNC void normalize(thread TileLeft<T, kStrip, kWide>& q, RowNorm norm) {
  float inverses[2];
  MLXTS_UNROLL for (uint r = 0; r < 2; ++r) {
    float squares = 0.0f;
    MLXTS_UNROLL for (uint c = 0; c < kWide / 8; ++c) MLXTS_UNROLL for (uint e = 0; e < 2; ++e)
        squares += q.at(r, c, e) * q.at(r, c, e);
    inverses[r] = inverse_norm(row_sum(squares), norm);
  }
  scale_rows(q, inverses);
}

// What a lane's rows of q · hᵀ are multiplied by, and then their outputs: these are 0 where the mask or the chunk ends
// them.
template <typename T>
METAL_FUNC void output_factors(thread float (&decays)[2], thread float (&factors)[2], OutputTensors<T> m,
                               CumulativeGates G, Strip s) {
  MLXTS_UNROLL for (uint r = 0; r < 2; ++r) {
    const uint row = 8 * r + s.row, at = s.first + row;
    decays[r] = exp_of_sum(G.high[at], G.low[at]);
    factors[r] = row < s.rows && (!m.mask || m.mask[at] != 0) ? m.scale : 0.0f;
  }
}
METAL_FUNC void scale_outputs(thread WideSum& sum, thread const float (&factors)[2]) {
  MLXTS_UNROLL for (uint r = 0; r < 2; ++r) {
    MLXTS_UNROLL for (uint c = 0; c < kWide / 8; ++c) {
      MLXTS_UNROLL for (uint e = 0; e < 2; ++e) {
        thread float& value = sum.at(r, c, e);
        value = factors[r] != 0.0f ? value * factors[r] : 0.0f;
      }
    }
  }
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
      if (m.normalized) normalize(queries, m.norm);
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
    output_factors(decays, factors, m, G, s);
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
    scale_outputs(sum, factors);
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
