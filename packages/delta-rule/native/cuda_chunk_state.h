// metal_chunk_state.h in a CUDA translation. With elements of 16 bits and one gate a head a simdgroup's quarter of a
// state never leaves its registers: it is the right operand of its part of w Sᵀ, over the simdgroup's own keys. The
// parts of the four simdgroups of a team, which share 16 value rows, meet in threadgroup memory; a thread of the team
// adds them up for eight values of a token. Carriers bring the next chunks meanwhile, to p.slots places, and take the
// rounded states away: beside one team other simdgroups, which shortens the way from chunk to chunk, else the teams.
#pragma once
#include "pieces_cuda.h"
#include "state_tiles_metal.h"

namespace mlxts {

constant constexpr uint kTeam = CHUNK_STATE_SIMDGROUPS * kSimd;  // threads
constant constexpr uint kSumStride = CHUNK_STATE_SUM_STRIDE;     // of a token's values in a team's tiles
static_assert(kTeam * 8 == kRows * kChunk, "a thread has eight values of a token");
template <uint Teams>
constexpr uint kCarriers = Teams * kTeam;

// A slot of threadgroup memory with what a chunk needs, the threadgroup's columns of u among it.
template <typename T, uint Keys, uint Teams>
struct ChunkSlot {
  enum : uint { kStride = tile_stride<T>(Keys), kUStride = Teams * kRows + 8, kMatrix = kChunk * kStride };
  enum : uint { kBytes = (2 * kMatrix + kChunk * kUStride) * sizeof(T) + 2 * kChunk * sizeof(float) };
  threadgroup T* w;
  threadgroup T* k;
  threadgroup T* u;
  threadgroup float* G;  // and GLow, kChunk behind it

  METAL_FUNC ChunkSlot(threadgroup uchar* slots, uint number)
      : w((threadgroup T*)(slots + number * kBytes)),
        k(w + kMatrix),
        u(k + kMatrix),
        G((threadgroup float*)(u + kChunk * kUStride)) {}
  METAL_FUNC float2 gate(uint token) const { return float2(G[token], G[kChunk + token]); }
};

// A carrier's part of the chunks of a head on their way, and of the states before them.
template <typename T, uint Keys, uint Teams>
struct Carrier {
  typedef ChunkSlot<T, Keys, Teams> Slot;
  enum : uint { kPieces = Keys / 8, kStep = kCarriers<Teams> / kPieces };  // of a row of keys; rows brought at once
  enum : uint { kValuePieces = Teams * kRows / 8 };                        // of a token of u
  static_assert(kChunk * kValuePieces == kCarriers<Teams>, "a carrier has eight values of a token");

  StateHead<T> head;  // from the chunk on that starts next; h: the thread's part of the next that is taken away
  uint index, K, wStride, kStride, uStride, gateStride, values, length;  // `values` exist of the threadgroup's
  threadgroup uchar* slots;
  uint last, into;  // the last slot, and the one to be filled next

  METAL_FUNC Carrier(StateHead<T> from, constant ChunkStateParams& p, threadgroup uchar* memory, uint begin, uint own)
      : head(from),
        index(own),
        K(p.keyDim),
        wStride(p.heads * p.keyDim),
        kStride(p.keyHeads * p.keyDim),
        uStride(p.heads * p.valueDim),
        gateStride(p.heads),
        values(p.valueDim - begin),
        length(p.chunkLength),
        slots(memory),
        last(p.slots - 1),
        into(0) {
    head.u += begin;
    head.h += ulong(begin) * K;
  }
  METAL_FUNC void start_keys(threadgroup T* to, device const T* from, uint stride, uint rows) const {
    const uint row = index / kPieces, key = index % kPieces * 8;
    device const T* own = from + row * stride + key;
    to += row * Slot::kStride + key;
    if (rows == kChunk && key < K) {
      MLXTS_UNROLL for (uint i = 0; i < kChunk; i += kStep) {
        machine::copy_start<16>(to + i * Slot::kStride, own);
        own += kStep * stride;
      }
    } else {
#pragma unroll 1
      for (uint i = 0; i < kChunk; i += kStep) {
        const bool real = key < K && row + i < rows;
        machine::copy_start<16>(to + i * Slot::kStride, real ? own + i * stride : from, real ? 16 : 0);
      }
    }
  }
  METAL_FUNC void start() {
    if (head.tokens > 0) {
      const Slot slot(slots, into);
      const uint rows = metal::min(length, head.tokens), row = index / kValuePieces;
      const uint value = index % kValuePieces * 8;
      const bool real = row < rows && value < values;
      start_keys(slot.w, head.w, wStride, rows);
      start_keys(slot.k, head.k, kStride, rows);
      machine::copy_start<16>(slot.u + row * Slot::kUStride + value, head.u + (real ? row * uStride + value : 0),
                              real ? 16 : 0);
      if (index < 2 * kChunk) {
        const uint token = index % kChunk;
        const bool low = index >= kChunk, given = token < rows && (!low || head.G.carriesLow);
        machine::copy_start<4>(slot.G + index,
                               (low && given ? head.G.low : head.G.high) + (given ? token * gateStride : 0),
                               given ? 4 : 0);
      }
      head.w += ulong(rows) * wStride;
      head.k += ulong(rows) * kStride;
      head.u += ulong(rows) * uStride;
      head.G = gates_from(head.G, ulong(rows) * gateStride);
      head.tokens -= rows;
      into = into == last ? 0 : into + 1;
    }
    machine::copies_end();
  }
  // Until at most `last` − 1 chunks are on their way: after the next barrier, the others are there.
  METAL_FUNC void wait() const {
    if (last >= 3)
      machine::copies_wait<2>();
    else if (last == 2)
      machine::copies_wait<1>();
    else
      machine::copies_wait<0>();
  }
  // The rounded states of a team to device memory.
  METAL_FUNC void store_state(threadgroup const T* from, uint team) const {
    const uint row = index / kPieces, key = index % kPieces * 8, first = team * kRows;
    if (key >= K || row >= kRows) return;
    MLXTS_UNROLL for (uint i = 0; i < kRows; i += kStep) {
      const Piece<T> piece = *(threadgroup const Piece<T>*)(from + (row + i) * Slot::kStride + key);
      if (first + row + i < values) *(device Piece<T>*)(head.h + (first + row + i) * K + key) = piece;
    }
  }
  METAL_FUNC void next_state(constant ChunkStateParams& p) { head.h += ulong(p.heads) * p.valueDim * K; }
};
// What a team has in threadgroup memory.
template <typename T>
struct TeamTiles {
  threadgroup float* sums;  // [simdgroups, kChunk, kSumStride]: parts of w Sᵀ
  threadgroup T* values;    // [kChunk, kSumStride]: vNew as it is left at the chunk's end
  threadgroup T* state;     // [kRows, tile_stride(Keys)], rounded
};

// A simdgroup's part of a state, rounded, and what that left: right operands [K, V].
template <typename T, uint Columns>
struct RoundedState {
  TileRight<T, Columns, kRows> parts[2];

  METAL_FUNC explicit RoundedState(const State<Columns>& state) {
    MLXTS_UNROLL for (uint c = 0; c < Columns / 8; ++c) {
      MLXTS_UNROLL for (uint r = 0; r < kRows / 8; ++r) {
        const float a = state.at(r, c, 0), b = state.at(r, c, 1);
        const uint pair = Pairs<T>::of(a, b);
        parts[0].blocks[c / 2][r][c % 2] = pair;
        parts[1].blocks[c / 2][r][c % 2] = Pairs<T>::of(a - Pairs<T>::low(pair), b - Pairs<T>::high(pair));
      }
    }
  }
  // The rounded state to rows of a tile.
  METAL_FUNC void store(threadgroup T* to, uint stride, uint lane) const {
    to += matrix_row(lane) * stride + matrix_column(lane);
    MLXTS_UNROLL for (uint c = 0; c < Columns / 8; ++c) {
      MLXTS_UNROLL for (uint r = 0; r < kRows / 8; ++r)
          *(threadgroup uint*)(to + (r * stride + c) * 8) = parts[0].blocks[c / 2][r][c % 2];
    }
  }
};

// A simdgroup's columns of w of a whole chunk.
template <typename T, uint Columns>
struct OwnW {
  TileLeft<T, kChunk, Columns> left;
  TileSum<kChunk, kRows> sums;

  METAL_FUNC void load_from(threadgroup const T* w, uint stride) { load(left, w, stride); }
  // Adds the products of columns 16 k ….
  METAL_FUNC void multiply(const RoundedState<T, Columns>& state, uint k) {
    MLXTS_UNROLL for (uint part = 0; part < 2; ++part) {
      MLXTS_UNROLL for (uint i = 0; i < kChunk / 16; ++i) {
        MLXTS_UNROLL for (uint j = 0; j < kRows / 8; ++j)
            Pairs<T>::multiply_add(sums.blocks[i][j], left.blocks[i][k], state.parts[part].blocks[k][j]);
      }
    }
  }
};

METAL_FUNC float4 chosen(bool first, float4 a, float4 b) { return first ? a : b; }

// vNew = u − w Sᵀ, of which a thread of the team has eight values of one token, where those are wanted; what is left of
// it at the chunk's end, and zeros for tokens that are not real, to tiles.values.
template <typename T>
METAL_FUNC void store_values(TeamTiles<T> tiles, threadgroup const T* u, uint uStride, float left, device T* vNew,
                             uint own, bool real, bool wanted) {
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
  if (wanted) *(device Piece<T>*)vNew = value;
}

template <uint Keys, uint Teams, typename T>
METAL_FUNC void pass_in_teams(StateHead<T> head, constant ChunkStateParams& p, ChunkStateScratch scratch, uint part,
                              uint index, uint lane, uint simdgroup) {
  constexpr uint kColumns = Keys / CHUNK_STATE_SIMDGROUPS, kStride = tile_stride<T>(Keys);
  constexpr uint kTeamElements = kChunk * kSumStride + kRows * kStride;
  typedef ChunkSlot<T, Keys, Teams> Slot;
  const bool computes = index < Teams * kTeam, carries = Teams > 1 || !computes;
  const uint team = index / kTeam, own = index % kTeam, begin = part * Teams * kRows, row = begin + team * kRows;
  const uint number = simdgroup % CHUNK_STATE_SIMDGROUPS, column = number * kColumns;
  const uint H = p.heads, V = p.valueDim, tokens = head.tokens;
  const StatePlace place = state_place(p, row, column);
  threadgroup T* all = (threadgroup T*)scratch.values;
  const TeamTiles<T> tiles = {scratch.state + team * CHUNK_STATE_SIMDGROUPS * kChunk * kSumStride,
                              all + team * kTeamElements, all + team * kTeamElements + kChunk * kSumStride};
  Carrier<T, Keys, Teams> carrier(head, p, scratch.tiles, begin, index % kCarriers<Teams>);
  // A thread of a team stores eight values of a token.
  const uint token = own / 2, value = row + own % 2 * 8;
  device T* vNew = head.vNew + ulong(token) * H * V + value;

  State<kColumns> state;
  if (carries) {
#pragma unroll 1
    for (uint i = 0; i + 1 < p.slots; ++i) carrier.start();
    carrier.wait();
  }
  if (computes) begin_state(state, head, place, p, lane);
  threadgroup_barrier(metal::mem_flags::mem_threadgroup);
  OwnW<T, kColumns> w;
  if (computes && tokens > 0) w.load_from(Slot(scratch.tiles, 0).w + column, kStride);
  uint at = 0;
#pragma unroll 1
  for (uint first = 0; first < tokens; first += p.chunkLength) {
    const uint count = metal::min(p.chunkLength, tokens - first);
    const Slot slot(scratch.tiles, at);
    at = at + 1 == p.slots ? 0 : at + 1;
    float decay, kept;
    TileRight<T, kChunk, kColumns> keys;
    if (computes) {
      const RoundedState<T, kColumns> rounded(state);
      rounded.store(tiles.state + column, kStride, lane);
      fill(w.sums, 0.0f);
      MLXTS_UNROLL for (uint k = 0; k < kColumns / 16; ++k) w.multiply(rounded, k);
      const float2 end = slot.gate(count - 1), left = end - slot.gate(token);
      decay = exp_of_sum(end.x, end.y);
      kept = metal::precise::exp(left.x + left.y);
    }
    if (carries) carrier.start();  // to where the chunk before this one was, which has been used
    if (computes) store(w.sums, tiles.sums + number * kChunk * kSumStride, kSumStride, lane);
    threadgroup_barrier(metal::mem_flags::mem_threadgroup);
    if (computes) {
      store_values(tiles, slot.u + team * kRows, Slot::kUStride, kept, vNew, own, token < count,
                   token < count && value < V);
      load(keys, slot.k + column, kStride);
      MLXTS_UNROLL for (uint r = 0; r < kRows / 8; ++r) {
        MLXTS_UNROLL for (uint c = 0; c < kColumns / 8; ++c) {
          MLXTS_UNROLL for (uint e = 0; e < 2; ++e) state.at(r, c, e) *= decay;
        }
      }
      vNew += ulong(count) * H * V;
    }
    if (carries) {
      MLXTS_UNROLL for (uint t = 0; t < Teams; ++t)
          carrier.store_state(all + t * kTeamElements + kChunk * kSumStride, t);
      carrier.next_state(p);
      carrier.wait();  // for the next chunk
    }
    threadgroup_barrier(metal::mem_flags::mem_threadgroup);
    if (!computes) continue;
    TileLeft<T, kRows, kChunk> weights;
    load_transposed(weights, tiles.values, kSumStride);
    if (first + count < tokens) w.load_from(Slot(scratch.tiles, at).w + column, kStride);
    multiply_add(state, weights, keys);
    keep_state(state, head, first + count, place, p, lane);
  }
  if (computes) end_state(state, head, place, p, lane);
}

template <bool Channels, uint Keys, typename T>
METAL_FUNC void pass_over(StateHead<T> head, constant ChunkStateParams& p, ChunkStateScratch scratch, uint part,
                          uint index, uint lane, uint simdgroup) {
  const uint teams = p.teams, team = index / kTeam;
  if constexpr (sizeof(T) == 2 && !Channels) {
    const bool aligned =
        aligned16(head.w) && aligned16(head.k) && aligned16(head.u) && aligned16(head.vNew) && aligned16(head.h);
    if (teams > 0 && aligned) {
      if (teams == 1)
        pass_in_teams<Keys, 1>(head, p, scratch, part, index, lane, simdgroup);
      else
        pass_in_teams<Keys, 2>(head, p, scratch, part, index, lane, simdgroup);
      return;
    }
  }
  if (team > 0 && team >= teams) return;  // carriers
  // The parts of the teams, which all pass the same barriers.
  scratch.state += team * kRows * tile_stride<float>(Keys);
  scratch.values += team * kChunk * tile_stride<T>(kRows) * sizeof(T);
  scratch.tiles += team * CHUNK_STATE_SIMDGROUPS * HeadPanels<T, Keys>::kTile * sizeof(T);
  pass_in_tiles<Channels, Keys>(head, p, scratch, part * metal::max(teams, 1u) + team, index % kTeam, lane,
                                simdgroup % CHUNK_STATE_SIMDGROUPS);
}

}  // namespace mlxts
