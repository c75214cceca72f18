// metal_chunk_state.h in a CUDA translation. With elements of 16 bits and one gate a head a simdgroup's quarter of a
// state never leaves its registers: it is the right operand of its part of w Sᵀ, over the simdgroup's own keys. The
// parts of the four simdgroups of a team, which share 16 value rows, meet in threadgroup memory; a thread of the team
// adds them up for eight values of a token. The next chunks are on their way meanwhile, to p.slots places.
#pragma once
#include "state_tiles_metal.h"

namespace mlxts {

constant constexpr uint kTeam = CHUNK_STATE_SIMDGROUPS * kSimd;  // threads
constant constexpr uint kSumStride = CHUNK_STATE_SUM_STRIDE;     // of a token's values in a team's tiles
static_assert(kTeam * 8 == kRows * kChunk, "a thread has eight values of a token");

// Eight neighbors.
template <typename T>
struct alignas(16) Piece {
  T of[8];
};

METAL_FUNC bool aligned16(device const void* at) { return (ulong(at) & 15) == 0; }

// Eight neighbors to threadgroup memory where they cannot be copied without registers; zeros for those that do not
// exist.
template <typename T>
METAL_FUNC void copy_piece(threadgroup T* to, device const T* from, uint exist) {
  for (uint n = 0; n < 8; ++n) to[n] = n < exist ? from[n] : T(0.0f);
}
template <typename T>
METAL_FUNC void store_piece(device T* to, Piece<T> piece, uint exist, bool aligned) {
  if (aligned && exist >= 8) {
    *(device Piece<T>*)to = piece;
    return;
  }
  MLXTS_UNROLL for (uint n = 0; n < 8; ++n) {
    if (n < exist) to[n] = piece.of[n];
  }
}

// Who a thread is: its team, its place there, and all teams.
struct Member {
  uint team, own, teams;
};

// A slot of threadgroup memory with what a chunk needs.
template <typename T, uint Keys>
struct ChunkSlot {
  static constant constexpr uint kStride = tile_stride<T>(Keys);
  threadgroup T *w, *k, *u;
  threadgroup float* G;  // and GLow, kChunk behind it
  uint uStride;

  METAL_FUNC ChunkSlot(threadgroup uchar* memory, uint teams)
      : w((threadgroup T*)memory),
        k(w + kChunk * kStride),
        u(k + kChunk * kStride),
        G((threadgroup float*)(u + kChunk * (teams * kRows + 8))),
        uStride(teams * kRows + 8) {}
  METAL_FUNC static uint bytes(uint teams) {
    return kChunk * ((2 * kStride + teams * kRows + 8) * uint(sizeof(T)) + 2 * uint(sizeof(float)));
  }
  METAL_FUNC float2 gate(uint token) const { return float2(G[token], G[kChunk + token]); }
};

// A thread's part of the chunks of a head on their way. The head's tensors lead to the chunk that starts next.
template <typename T, uint Keys>
struct ChunkQueue {
  static constant constexpr uint kPieces = Keys / 8, kStep = kTeam / kPieces;  // of a row; rows that a team brings at once
  typedef ChunkSlot<T, Keys> Slot;

  StateHead<T> head;
  Member member;
  uint K, H, V, keyHeads, length, values;  // `values` exist of the threadgroup's
  bool keysAligned, valuesAligned;
  threadgroup uchar* slots;
  uint last, into;  // the last slot, and the one to be filled next

  // A team's part of w or k.
  METAL_FUNC void start_keys(threadgroup T* to, device const T* from, uint stride, uint rows) const {
    const uint first = member.own / kPieces, column = member.own % kPieces * 8, exist = column < K ? 8 : 0;
    device const T* own = from + ulong(first) * stride + column;
    to += first * Slot::kStride + column;
    rows = rows > first && exist > 0 ? rows - first : 0;
    if (keysAligned && rows + first == kChunk) {
      MLXTS_UNROLL for (uint i = 0; i < kChunk; i += kStep)
          machine::copy_start<16>(to + i * Slot::kStride, own + ulong(i) * stride);
    } else if (keysAligned) {
      for (uint i = 0; i < kChunk; i += kStep)
        machine::copy_start<16>(to + i * Slot::kStride, i < rows ? own + ulong(i) * stride : from, i < rows ? 16 : 0);
    } else {
      for (uint i = 0; i < kChunk; i += kStep)
        copy_piece(to + i * Slot::kStride, i < rows ? own + ulong(i) * stride : from, i < rows ? 8 : 0);
    }
  }
  METAL_FUNC void start_values(const Slot& slot, uint rows) const {
    const uint index = member.team * kTeam + member.own, pieces = member.teams * (kRows / 8);
    const uint row = index / pieces, column = index % pieces * 8;
    const bool exists = row < rows && column < values;
    threadgroup T* to = slot.u + row * slot.uStride + column;
    device const T* from = exists ? head.u + ulong(row) * H * V + column : head.u;
    if (valuesAligned)
      machine::copy_start<16>(to, from, exists ? 16 : 0);
    else
      copy_piece(to, from, exists ? values - column : 0);
  }
  METAL_FUNC void start_gates(const Slot& slot, uint rows) const {
    const uint token = member.own % kChunk;
    const bool low = member.own >= kChunk, real = token < rows && (!low || head.G.carriesLow);
    device const float* from = low && real ? head.G.low : head.G.high;
    machine::copy_start<4>(slot.G + member.own, real ? from + ulong(token) * H : from, real ? 4 : 0);
  }
  METAL_FUNC void start() {
    if (head.tokens > 0) {
      const uint rows = metal::min(length, head.tokens);
      const Slot slot(slots + into * Slot::bytes(member.teams), member.teams);
      if (member.team == 0) start_keys(slot.w, head.w, H * K, rows);
      if (member.team + 1 == member.teams) start_keys(slot.k, head.k, keyHeads * K, rows);
      start_values(slot, rows);
      if (member.team == 0) start_gates(slot, rows);
      head.w += ulong(rows) * H * K;
      head.k += ulong(rows) * keyHeads * K;
      head.u += ulong(rows) * H * V;
      head.G = gates_from(head.G, ulong(rows) * H);
      head.tokens -= rows;
      into = into == last ? 0 : into + 1;
    }
    machine::copies_end();
  }
  // Until at most last − 1 chunks are on their way: after the next barrier, the others are there.
  METAL_FUNC void wait() const {
    if (last >= 3)
      machine::copies_wait<2>();
    else if (last == 2)
      machine::copies_wait<1>();
    else
      machine::copies_wait<0>();
  }
};

// What a team has in threadgroup memory.
template <typename T>
struct TeamTiles {
  threadgroup float* sums;  // [simdgroups, kChunk, kSumStride]: parts of w Sᵀ
  threadgroup T* values;    // [kChunk, kSumStride]: vNew as it is left at the chunk's end
  threadgroup T* state;     // [kRows, tile_stride(Keys)], rounded
};

// A part of a state, rounded, and what that left: right operands [K, V].
template <typename T, uint Columns>
struct RoundedState {
  TileRight<T, Columns, kRows> high, low;

  METAL_FUNC explicit RoundedState(const State<Columns>& state) {
    MLXTS_UNROLL for (uint c = 0; c < Columns / 8; ++c) {
      MLXTS_UNROLL for (uint r = 0; r < kRows / 8; ++r) {
        const float a = state.at(r, c, 0), b = state.at(r, c, 1);
        const uint pair = Pairs<T>::of(a, b);
        high.blocks[c / 2][r][c % 2] = pair;
        low.blocks[c / 2][r][c % 2] = Pairs<T>::of(a - Pairs<T>::low(pair), b - Pairs<T>::high(pair));
      }
    }
  }
  // The rounded part to rows of a tile.
  METAL_FUNC void store(threadgroup T* to, uint stride, uint lane) const {
    to += matrix_row(lane) * stride + matrix_column(lane);
    MLXTS_UNROLL for (uint c = 0; c < Columns / 8; ++c) {
      MLXTS_UNROLL for (uint r = 0; r < kRows / 8; ++r)
          *(threadgroup uint*)(to + (r * stride + c) * 8) = high.blocks[c / 2][r][c % 2];
    }
  }
};

// A simdgroup's part of w Sᵀ, `w` from its first key on.
template <typename T, uint Columns>
METAL_FUNC void store_products(const RoundedState<T, Columns>& state, threadgroup const T* w, uint stride,
                               threadgroup float* to, uint lane) {
  TileSum<16, kRows> sums[kChunk / 16];
  MLXTS_UNROLL for (uint i = 0; i < kChunk / 16; ++i) fill(sums[i], 0.0f);
  MLXTS_UNROLL for (uint k = 0; k < Columns; k += 16) {
    MLXTS_UNROLL for (uint i = 0; i < kChunk / 16; ++i) {
      TileLeft<T, 16, 16> left;
      load(left, w + i * 16 * stride + k, stride);
      MLXTS_UNROLL for (uint j = 0; j < kRows / 8; ++j)
          Pairs<T>::multiply_add(sums[i].blocks[0][j], left.blocks[0][0], state.high.blocks[k / 16][j]);
      MLXTS_UNROLL for (uint j = 0; j < kRows / 8; ++j)
          Pairs<T>::multiply_add(sums[i].blocks[0][j], left.blocks[0][0], state.low.blocks[k / 16][j]);
    }
  }
  MLXTS_UNROLL for (uint i = 0; i < kChunk / 16; ++i) store(sums[i], to + i * 16 * kSumStride, kSumStride, lane);
}

METAL_FUNC float4 chosen(bool first, float4 a, float4 b) { return first ? a : b; }

// vNew = u − w Sᵀ, of which a thread of the team has eight values of one token of `rows`, to device memory where
// `exist` of the eight do; what is left of it at the chunk's end to values.
template <typename T>
METAL_FUNC void store_values(TeamTiles<T> tiles, threadgroup const T* u, uint uStride, float left, device T* vNew,
                             uint own, bool real, uint exist, bool aligned) {
  const uint token = own / 2, half = own % 2, column = half * 8;
  // Odd threads begin with the second four, so that neighbors meet different banks.
  float4 sums[2];
  MLXTS_UNROLL for (uint i = 0; i < 2; ++i) {
    threadgroup const float* at = tiles.sums + token * kSumStride + column + (i ^ half) * 4;
    constexpr uint kPart = kChunk * kSumStride;
    const float4 a = *(threadgroup const float4*)at, b = *(threadgroup const float4*)(at + kPart);
    const float4 c = *(threadgroup const float4*)(at + 2 * kPart), d = *(threadgroup const float4*)(at + 3 * kPart);
    sums[i] = (a + b) + (c + d);
  }
  const Piece<T> from = *(threadgroup const Piece<T>*)(u + token * uStride + column);
  const float4 four[2] = {chosen(half == 0, sums[0], sums[1]), chosen(half == 0, sums[1], sums[0])};
  Piece<T> value, kept;
  MLXTS_UNROLL for (uint n = 0; n < 8; ++n) {
    const float v = float(from.of[n]) - four[n / 4][n % 4];
    value.of[n] = T(v);
    kept.of[n] = T(real ? v * left : 0.0f);
  }
  *(threadgroup Piece<T>*)(tiles.values + token * kSumStride + column) = kept;
  if (real) store_piece(vNew, value, exist, aligned);
}

template <uint Keys, typename T>
METAL_FUNC void pass_in_teams(StateHead<T> head, constant ChunkStateParams& p, ChunkStateScratch scratch, uint part,
                              uint index, uint lane, uint simdgroup) {
  constexpr uint kColumns = Keys / CHUNK_STATE_SIMDGROUPS, kStride = tile_stride<T>(Keys);
  const Member member = {index / kTeam, index % kTeam, machine::threads().x / kTeam};
  const uint H = p.heads, K = p.keyDim, V = p.valueDim, tokens = head.tokens;
  const uint begin = part * member.teams * kRows, row = begin + member.team * kRows;
  const uint own = simdgroup % CHUNK_STATE_SIMDGROUPS, column = own * kColumns;
  const StatePlace place = state_place(p, row, column);
  const TeamTiles<T> tiles = {
      scratch.state + member.team * CHUNK_STATE_SIMDGROUPS * kChunk * kSumStride,
      (threadgroup T*)scratch.values + member.team * (kChunk * kSumStride + kRows * kStride),
      (threadgroup T*)scratch.values + member.team * (kChunk * kSumStride + kRows * kStride) + kChunk * kSumStride};
  StateHead<T> from = head;
  from.u += begin;
  ChunkQueue<T, Keys> queue = {from,
                               member,
                               K,
                               H,
                               V,
                               p.keyHeads,
                               p.chunkLength,
                               V - begin,
                               aligned16(head.w) && aligned16(head.k),
                               V % 8 == 0 && aligned16(from.u),
                               scratch.tiles,
                               p.slots - 1,
                               0};
  for (uint i = 0; i < p.slots; ++i) queue.start();

  // What a thread stores: eight values of a token, and pieces of the state.
  const uint token = member.own / 2, value = row + member.own % 2 * 8, values = value < V ? V - value : 0;
  device T* vNew = head.vNew + ulong(token) * H * V + value;
  const bool valuesAligned = V % 8 == 0 && aligned16(vNew);
  constexpr uint kPieces = Keys / 8;
  const uint stateRow = member.own / kPieces, stateColumn = member.own % kPieces * 8;
  device T* h = head.h + ulong(row + stateRow) * K + stateColumn;
  const bool stateAligned = aligned16(h);

  State<kColumns> state;
  begin_state(state, head, place, p, lane);
  queue.wait();
  threadgroup_barrier(metal::mem_flags::mem_threadgroup);
  uint at = 0;
  for (uint first = 0; first < tokens; first += p.chunkLength) {
    const uint count = metal::min(p.chunkLength, tokens - first);
    const ChunkSlot<T, Keys> slot(scratch.tiles + at * ChunkSlot<T, Keys>::bytes(member.teams), member.teams);
    at = at == queue.last ? 0 : at + 1;
    const float2 end = slot.gate(count - 1);
    {
      const RoundedState<T, kColumns> rounded(state);
      rounded.store(tiles.state + column, kStride, lane);
      store_products(rounded, slot.w + column, kStride, tiles.sums + own * kChunk * kSumStride, lane);
    }
    const float decay = exp_of_sum(end.x, end.y);
    MLXTS_UNROLL for (uint r = 0; r < kRows / 8; ++r) {
      MLXTS_UNROLL for (uint c = 0; c < kColumns / 8; ++c) {
        MLXTS_UNROLL for (uint e = 0; e < 2; ++e) state.at(r, c, e) *= decay;
      }
    }
    const float2 left = end - slot.gate(token);
    const float kept = metal::precise::exp(left.x + left.y);
    threadgroup_barrier(metal::mem_flags::mem_threadgroup);
    store_values(tiles, slot.u + member.team * kRows, slot.uStride, kept, vNew, member.own, token < count, values,
                 valuesAligned);
    MLXTS_UNROLL for (uint i = 0; i < kRows; i += kTeam / kPieces) {
      const Piece<T> piece = *(threadgroup const Piece<T>*)(tiles.state + (stateRow + i) * kStride + stateColumn);
      if (row + stateRow + i < V && stateColumn < K) store_piece(h + ulong(i) * K, piece, 8, stateAligned);
    }
    TileRight<T, kChunk, kColumns> keys;
    load(keys, slot.k + column, kStride);
    queue.wait();  // for the next chunk
    threadgroup_barrier(metal::mem_flags::mem_threadgroup);
    MLXTS_UNROLL for (uint i = 0; i < kChunk / 16; ++i) {
      TileLeft<T, kRows, 16> weights;
      load_transposed(weights, tiles.values + i * 16 * kSumStride, kSumStride);
      MLXTS_UNROLL for (uint j = 0; j < kColumns / 8; ++j)
          Pairs<T>::multiply_add(state.blocks[0][j], weights.blocks[0][0], keys.blocks[i][j]);
    }
    queue.start();
    vNew += ulong(count) * H * V;
    h += ulong(H) * V * K;
    keep_state(state, head, first + count, place, p, lane);
  }
  end_state(state, head, place, p, lane);
}

template <bool Channels, uint Keys, typename T>
METAL_FUNC void pass_over(StateHead<T> head, constant ChunkStateParams& p, ChunkStateScratch scratch, uint part,
                          uint index, uint lane, uint simdgroup) {
  if constexpr (sizeof(T) == 2 && !Channels) {
    if (p.slots > 0) {
      pass_in_teams<Keys>(head, p, scratch, part, index, lane, simdgroup);
      return;
    }
  }
  pass_in_tiles<Channels, Keys>(head, p, scratch, part, index, lane, simdgroup);
}

}  // namespace mlxts
