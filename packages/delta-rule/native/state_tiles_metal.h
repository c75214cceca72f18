// 16 value rows of the state of one head, chunk after chunk. Each simdgroup keeps a quarter of the state's columns, those
// of keys, in registers. In a chunk it first makes vNew of 16 tokens, for which the simdgroups put the whole state into
// threadgroup memory; then it adds the products of all tokens' values and keys to its columns. In a CUDA translation
// cuda_chunk_state.h has another order of work for 16-bit elements.
#pragma once
#include "channels_metal.h"
#include "state_head_metal.h"

namespace mlxts {

constant constexpr uint kStrip = kChunk / CHUNK_STATE_SIMDGROUPS;  // tokens of a simdgroup

constexpr uint least(uint a, uint b) { return a < b ? a : b; }

// Gates of a chunk, high and low: of this lane's two tokens, and of the chunk's last one.
struct ChunkGates {
  float2 own[kStrip / 8], last;
};

METAL_FUNC float2 gate_at(CumulativeGateTensors G, uint token) {
  const ulong at = ulong(token) * G.stride;
  return float2(G.high[at], G.carriesLow ? G.low[at] : 0.0f);
}

// Of the chunk that ends before the token `end`; `own` is the lane's first token, or behind the end.
METAL_FUNC ChunkGates load_gates(CumulativeGateTensors G, uint own, uint end) {
  ChunkGates gates;
  gates.last = gate_at(G, end - 1);
  MLXTS_UNROLL for (uint r = 0; r < kStrip / 8; ++r) gates.own[r] = gate_at(G, metal::min(own + 8 * r, end - 1));
  return gates;
}

// S ← exp(G_last) S. With `Channels` each column has its own gate; G begins with the chunk and the columns.
template <bool Channels, uint Columns>
METAL_FUNC void decay_state(thread State<Columns>& state, ChunkGates gates, CumulativeGateTensors G, uint last,
                            uint columns, uint lane) {
  const float all = Channels ? 0.0f : exp_of_sum(gates.last.x, gates.last.y);
  MLXTS_UNROLL for (uint c = 0; c < Columns / 8; ++c) {
    MLXTS_UNROLL for (uint e = 0; e < 2; ++e) {
      const uint column = 8 * c + matrix_column(lane) + e;
      if (Channels && column >= columns) continue;
      const float decay = Channels ? decay_at(gates_from(G, column), last) : all;
      MLXTS_UNROLL for (uint r = 0; r < kRows / 8; ++r) state.at(r, c, e) *= decay;
    }
  }
}

// Keys on their way into a tile: decayed to their chunk's end. G begins with the tile's first token and column, and so
// does `last` count.
struct Decayed {
  CumulativeGateTensors G;
  uint last, columns;

  METAL_FUNC float4 operator()(uint token, uint column, float4 keys) const thread {
    if (token > last || column >= columns) return keys;
    const float4 high = high4(G, last, column) - high4(G, token, column);
    return keys * exp4(high + (low4(G, last, column) - low4(G, token, column)));
  }
};

// A matrix [tokens, columns] of a sequence (w, k or u) on its way into a simdgroup's tile [Rows, Columns], panel after
// panel. `most` rows of a panel count.
template <typename T, uint Rows, uint Columns>
struct Panels {
  static constant constexpr uint kTokens = Rows, kTile = Rows * tile_stride<T>(Columns);
  device const T* from;
  uint stride, tokens, columns, most, lane;
  threadgroup T* tile;
  TileCopy<T, T, Rows, Columns, kSimd> copy;

  METAL_FUNC void start(uint token, uint column) thread {
    const uint rows = token < tokens ? metal::min(tokens - token, most) : 0;
    copy.start(from + ulong(token) * stride + column, stride, rows, column < columns ? columns - column : 0, lane);
  }
  // `change` as TileCopy takes it, if any.
  template <typename... Change>
  METAL_FUNC void finish(Change... change) thread {
    simdgroup_barrier(metal::mem_flags::mem_threadgroup);  // the panel before has been used
    copy.finish(tile, lane, change...);
    simdgroup_barrier(metal::mem_flags::mem_threadgroup);
  }
};

// What a simdgroup brings: panels that a tile has room for.
template <typename T, uint Keys>
struct HeadPanels {
  static constant constexpr uint kElements = CHUNK_STATE_TILE_BYTES / sizeof(T);
  static constant constexpr uint kColumns = least(Keys / CHUNK_STATE_SIMDGROUPS, kElements / 16);
  typedef Panels<T, kStrip, least(Keys, kElements / kStrip)> W;
  typedef Panels<T, kStrip, kRows> U;
  typedef Panels<T, least(kChunk, kElements / kColumns), kColumns> K;
  static constant constexpr uint kTile = W::kTile > K::kTile ? W::kTile : K::kTile;
  W w;
  U u;
  K k;
};

// w Sᵀ of the tokens from `token` on, in two sums of every other 16 columns, which need not wait for each other. The
// next tokens that w brings begin with `next`.
template <uint Keys, typename T, uint Rows, uint Columns>
METAL_FUNC void multiply_state(thread TileSum<kStrip, kRows> (&sums)[2], thread Panels<T, Rows, Columns>& w,
                               threadgroup const float* state, uint token, uint next) {
  for (uint first = 0; first < Keys && first < w.columns; first += Columns) {
    const uint after = first + Columns;
    w.finish();
    w.start(after < w.columns ? token : next, after < w.columns ? after : 0);
    MLXTS_UNROLL for (uint c = 0; c < Columns; c += 16) {
      TileLeft<T, kStrip, 16> left;
      TileRight<float, 16, kRows> right;
      load(left, w.tile + c, tile_stride<T>(Columns));
      load_transposed(right, state + first + c, tile_stride<float>(Keys));
      multiply_add(sums[c / 16 % 2], left, right);
    }
  }
}

// Tokens of a sequence.
struct Part {
  uint first, count;
};

// vNew = u − w Sᵀ of a simdgroup's tokens of a chunk; the next chunk's begin with `next`. The tile of u gets what is
// left of vNew at the chunk's end (with `Channels` all), and zeros behind the tokens.
template <bool Channels, uint Keys, typename T, uint Rows, uint Columns>
METAL_FUNC void store_values(thread Panels<T, kStrip, kRows>& u, thread Panels<T, Rows, Columns>& w,
                             threadgroup const float* state, ChunkGates gates, device T* vNew, Part own, uint next) {
  constexpr uint kStride = tile_stride<T>(kRows);
  TileSum<kStrip, kRows> products[2], values;
  MLXTS_UNROLL for (uint i = 0; i < 2; ++i) fill(products[i], 0.0f);
  u.finish();
  u.start(next, 0);
  if (own.count > 0) multiply_state<Keys>(products, w, state, own.first, next);
  load(values, u.tile, kStride, u.lane);
  MLXTS_UNROLL for (uint r = 0; r < kStrip / 8; ++r) {
    const bool real = 8 * r + matrix_row(u.lane) < own.count;
    MLXTS_UNROLL for (uint c = 0; c < kRows / 8; ++c) {
      MLXTS_UNROLL for (uint e = 0; e < 2; ++e) {
        const float product = products[0].at(r, c, e) + products[1].at(r, c, e);
        values.at(r, c, e) = real ? values.at(r, c, e) - product : 0.0f;
      }
    }
  }
  store(values, u.tile, kStride, u.lane);
  simdgroup_barrier(metal::mem_flags::mem_threadgroup);
  store_tile<kStrip, kRows, kSimd>(u.tile, vNew + ulong(own.first) * u.stride, u.stride, own.count, u.columns, u.lane);
  if (Channels) return;
  simdgroup_barrier(metal::mem_flags::mem_threadgroup);
  float decays[kStrip / 8];
  MLXTS_UNROLL for (uint r = 0; r < kStrip / 8; ++r) {
    const float2 left = gates.last - gates.own[r];
    decays[r] = metal::precise::exp(left.x + left.y);
  }
  scale_rows(values, decays);
  store(values, u.tile, kStride, u.lane);
}

// S ← S + Σ values_i k_iᵀ of a chunk, with which G begins, and with the simdgroup's columns.
template <bool Channels, typename T, uint StateColumns, uint Rows, uint Columns>
METAL_FUNC void add_keys(thread State<StateColumns>& state, threadgroup const T* values,
                         thread Panels<T, Rows, Columns>& k, CumulativeGateTensors G, Part chunk) {
  constexpr uint kStride = tile_stride<T>(kRows);
  for (uint first = 0; first < kChunk && first < chunk.count; first += Rows) {
    MLXTS_UNROLL for (uint c = 0; c < StateColumns; c += Columns) {
      if (c >= k.columns) continue;
      const bool last = c + Columns >= metal::min(StateColumns, k.columns);
      if (Channels)
        k.finish(Decayed{gates_from(G, first * G.stride + c), chunk.count - 1 - first, k.columns - c});
      else
        k.finish();
      k.start(chunk.first + first + (last ? k.most : 0), last ? 0 : c + Columns);
      for (uint i = 0; i < Rows; i += 16) {
        TileLeft<T, kRows, 16> left;
        TileRight<T, 16, Columns> right;
        load_transposed(left, values + (first + i) * kStride, kStride);
        load(right, k.tile + i * tile_stride<T>(Columns), tile_stride<T>(Columns));
        multiply_add_columns(state, c, left, right);
      }
    }
  }
}

// The state from a chunk's beginning, which goes to h, to its end; vNew. G begins with the sequence; `gates` become those
// of the next chunk. `first` is the simdgroup's first token of a chunk, `column` its first of the state.
template <bool Channels, typename T, uint Keys, uint Columns>
METAL_FUNC void use_chunk(thread State<Columns>& state, thread HeadPanels<T, Keys>& panels, thread ChunkGates& gates,
                          CumulativeGateTensors G, device T* h, device T* vNew, Part chunk, uint first, uint column,
                          constant ChunkStateParams& p, ChunkStateScratch scratch, uint index) {
  const uint lane = panels.u.lane, tokens = panels.u.tokens, next = chunk.first + p.chunkLength;
  const uint real = metal::min(kStrip, chunk.count > first ? chunk.count - first : 0);
  const CumulativeGateTensors columnGates = gates_from(G, ulong(chunk.first) * G.stride + column);
  store(state, scratch.state + column, tile_stride<float>(Keys), lane);
  threadgroup_barrier(metal::mem_flags::mem_threadgroup);
  store_tile<kRows, Keys, CHUNK_STATE_THREADS>(scratch.state, h, p.keyDim, panels.u.columns, p.keyDim, index);
  store_values<Channels, Keys>(panels.u, panels.w, scratch.state, gates, vNew, {chunk.first + first, real},
                               next + first);
  decay_state<Channels>(state, gates, columnGates, chunk.count - 1, panels.k.columns, lane);
  if (!Channels && next < tokens)
    gates = load_gates(G, next + first + matrix_row(lane), metal::min(next + p.chunkLength, tokens));
  threadgroup_barrier(metal::mem_flags::mem_threadgroup);
  add_keys<Channels>(state, (threadgroup const T*)scratch.values, panels.k, columnGates, chunk);
}

// With `Channels` each channel of a key has its own gate: keys are decayed on their way into a tile, not the values.
template <bool Channels, uint Keys, typename T>
METAL_FUNC void pass_in_tiles(StateHead<T> head, constant ChunkStateParams& p, ChunkStateScratch scratch, uint part,
                              uint index, uint lane, uint simdgroup) {
  constexpr uint kColumns = Keys / CHUNK_STATE_SIMDGROUPS;
  typedef HeadPanels<T, Keys> Of;
  const uint tokens = head.tokens, K = p.keyDim, V = p.valueDim, H = p.heads;
  const uint row = part * kRows, column = simdgroup * kColumns;
  const uint first = simdgroup * kStrip, strip = first < p.chunkLength ? kStrip : 0;  // its tokens of a chunk
  const StatePlace place = state_place(p, row, column);
  device T* h = head.h + ulong(row) * K;

  threadgroup T* tile = (threadgroup T*)scratch.tiles + simdgroup * Of::kTile;
  threadgroup T* values = (threadgroup T*)scratch.values + first * tile_stride<T>(kRows);
  const uint step = metal::min(Of::K::kTokens, p.chunkLength);
  Of panels = {{head.w, H * K, tokens, K, strip, lane, tile, {}},
               {head.u + row, H * V, tokens, place.rows, strip, lane, values, {}},
               {head.k + column, p.keyHeads * K, tokens, place.columns, step, lane, tile, {}}};

  State<kColumns> state;
  begin_state(state, head, place, p, lane);
  panels.w.start(first, 0);
  panels.u.start(first, 0);
  panels.k.start(0, 0);
  ChunkGates gates;
  if (!Channels && tokens > 0)
    gates = load_gates(head.G, first + matrix_row(lane), metal::min(p.chunkLength, tokens));
  for (uint begin = 0; begin < tokens; begin += p.chunkLength) {
    const Part chunk = {begin, metal::min(p.chunkLength, tokens - begin)};
    use_chunk<Channels>(state, panels, gates, head.G, h, head.vNew + row, chunk, first, column, p, scratch, index);
    h += ulong(H) * V * K;
    keep_state(state, head, begin + chunk.count, place, p, lane);
  }
  end_state(state, head, place, p, lane);
}

}  // namespace mlxts
