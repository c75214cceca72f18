// What both orders of work of chunk_state share: the head of a threadgroup, and a simdgroup's part of its state.
#pragma once
#include "chunk_metal.h"
#include "chunk_state.params.h"
#include "metal_tile.h"

namespace mlxts {

constant constexpr uint kRows = CHUNK_STATE_ROWS, kChunk = CHUNK_STATE_MOST_TOKENS;

template <uint Columns>
using State = TileSum<kRows, Columns>;

// The rows and columns that a simdgroup has of a state, how far they lie apart, and the first element.
struct StatePlace {
  uint rows, columns, rowStride, columnStride;
  ulong first;
};

METAL_FUNC StatePlace state_place(constant ChunkStateParams& p, uint row, uint column) {
  return {p.valueDim > row ? p.valueDim - row : 0, p.keyDim > column ? p.keyDim - column : 0, p.rowStride,
          p.columnStride, ulong(row) * p.rowStride + ulong(column) * p.columnStride};
}

template <uint Columns>
METAL_FUNC void load_state(thread State<Columns>& state, device const float* from, StatePlace p, uint lane) {
  MLXTS_UNROLL for (uint r = 0; r < kRows / 8; ++r) {
    MLXTS_UNROLL for (uint c = 0; c < Columns / 8; ++c) {
      const uint row = 8 * r + matrix_row(lane), column = 8 * c + matrix_column(lane);
      if (row >= p.rows || column >= p.columns) continue;
      device const float* two = from + row * p.rowStride + column * p.columnStride;
      MLXTS_UNROLL for (uint e = 0; e < 2; ++e) state.at(r, c, e) = two[e * p.columnStride];
    }
  }
}

template <uint Columns>
METAL_FUNC void store_state(thread const State<Columns>& state, device float* to, StatePlace p, uint lane) {
  MLXTS_UNROLL for (uint r = 0; r < kRows / 8; ++r) {
    MLXTS_UNROLL for (uint c = 0; c < Columns / 8; ++c) {
      const uint row = 8 * r + matrix_row(lane), column = 8 * c + matrix_column(lane);
      if (row >= p.rows || column >= p.columns) continue;
      device float* two = to + row * p.rowStride + column * p.columnStride;
      MLXTS_UNROLL for (uint e = 0; e < 2; ++e) two[e * p.columnStride] = state.at(r, c, e);
    }
  }
}

// A head of a sequence in device memory, from the sequence's first token on.
template <typename T>
struct StateHead {
  device const T *k, *w, *u;
  CumulativeGateTensors G;
  device T *h, *vNew;                    // h [V, K], the next chunk's H · V · K behind it
  device const float* initialState;      // where there is one, as the next two where they are wanted
  device float *finalState, *snapshots;  // of these one lies H · V · K behind the other
  uint tokens;
};

template <uint Columns, typename T>
METAL_FUNC void begin_state(thread State<Columns>& state, thread const StateHead<T>& head, StatePlace place,
                            constant ChunkStateParams& p, uint lane) {
  fill(state, 0.0f);
  if (p.present & CHUNK_STATE_HAS_INITIAL_STATE) load_state(state, head.initialState + place.first, place, lane);
}

// After a chunk, the first `done` tokens: a snapshot of the state where one is due.
template <uint Columns, typename T>
METAL_FUNC void keep_state(thread const State<Columns>& state, thread const StateHead<T>& head, uint done,
                           StatePlace place, constant ChunkStateParams& p, uint lane) {
  if (!(p.present & CHUNK_STATE_HAS_SNAPSHOTS) || done % p.snapshotEvery != 0) return;
  const ulong size = ulong(p.heads) * p.valueDim * p.keyDim;
  store_state(state, head.snapshots + (done / p.snapshotEvery - 1) * size + place.first, place, lane);
}

template <uint Columns, typename T>
METAL_FUNC void end_state(thread const State<Columns>& state, thread const StateHead<T>& head, StatePlace place,
                          constant ChunkStateParams& p, uint lane) {
  if (p.present & CHUNK_STATE_HAS_FINAL_STATE) store_state(state, head.finalState + place.first, place, lane);
}

}  // namespace mlxts
