// Four rows of a head's state in the registers of a simdgroup: a row lies across the lanes, a few neighboring elements
// in each.
#pragma once
#include "metal_kernel.h"

namespace mlxts {

constant constexpr uint kRows = 4;

// A lane's elements of a vector that lies across the simdgroup.
template <typename T, uint E>
struct Share {
  T at[E];
};

template <uint E>
struct Rows {
  Share<float, E> at[kRows];
};

// The states of a tensor; element [v, k] of a head at v · rowStride + k · columnStride.
struct StateLayout {
  uint keyDim, valueDim, rowStride, columnStride;
  // Elements before a row of a head.
  ulong at(ulong head, uint row) const { return head * valueDim * keyDim + ulong(row) * rowStride; }
};

// Elements first … first + E - 1 of `dim`, zeros behind the last.
template <typename T, uint E>
METAL_FUNC Share<T, E> load_share(device const T* from, uint first, uint dim) {
  Share<T, E> share;
  // Whole shares apart: the compiler can join their loads.
  if (first + E <= dim)
    for (uint i = 0; i < E; ++i) share.at[i] = from[first + i];
  else
    for (uint i = 0; i < E; ++i) share.at[i] = first + i < dim ? from[first + i] : T(0.0f);
  return share;
}

template <uint E>
METAL_FUNC void store_share(device float* to, uint first, uint dim, Share<float, E> share) {
  if (first + E <= dim)
    for (uint i = 0; i < E; ++i) to[first + i] = share.at[i];
  else
    for (uint i = 0; i < E; ++i)
      if (first + i < dim) to[first + i] = share.at[i];
}

// The first `rows` rows from `from` on, elements `first` … of each; zeros behind them.
template <uint E>
METAL_FUNC Rows<E> load_rows(StateLayout layout, device const float* from, uint rows, uint first) {
  Rows<E> state;
  if (layout.columnStride == 1) {
    MLXTS_UNROLL
    for (uint r = 0; r < kRows; ++r)
      state.at[r] = load_share<float, E>(from + r * layout.rowStride, first, r < rows ? layout.keyDim : 0);
    return state;
  }
  MLXTS_UNROLL
  for (uint i = 0; i < E; ++i) {
    const Share<float, kRows> column = load_share<float, kRows>(from + ulong(first + i) * layout.columnStride, 0,
                                                                first + i < layout.keyDim ? rows : 0);
    MLXTS_UNROLL
    for (uint r = 0; r < kRows; ++r) state.at[r].at[i] = column.at[r];
  }
  return state;
}

template <uint E>
METAL_FUNC void store_rows(StateLayout layout, device float* to, uint rows, uint first, thread const Rows<E>& state) {
  if (layout.columnStride == 1) {
    MLXTS_UNROLL
    for (uint r = 0; r < kRows; ++r)
      if (r < rows) store_share<E>(to + r * layout.rowStride, first, layout.keyDim, state.at[r]);
    return;
  }
  MLXTS_UNROLL
  for (uint i = 0; i < E; ++i) {
    Share<float, kRows> column;
    MLXTS_UNROLL
    for (uint r = 0; r < kRows; ++r) column.at[r] = state.at[r].at[i];
    if (first + i < layout.keyDim) store_share<kRows>(to + ulong(first + i) * layout.columnStride, 0, rows, column);
  }
}

// The decay of a gate; a factor of 0: the gate itself.
METAL_FUNC float decay_of(float gate, float factor) {
  return factor != 0.0f ? metal::precise::exp(gate * factor) : gate;
}

// A row times the decays: one for all elements, or one for each.
template <uint E>
METAL_FUNC void decay_row(thread Share<float, E>& row, Share<float, 1> decays) {
  for (uint i = 0; i < E; ++i) row.at[i] *= decays.at[0];
}
template <uint E>
METAL_FUNC void decay_row(thread Share<float, E>& row, Share<float, E> decays) {
  for (uint i = 0; i < E; ++i) row.at[i] *= decays.at[i];
}

// A row and delta · key.
template <uint E>
METAL_FUNC void update_row(thread Share<float, E>& row, float delta, Share<float, E> key) {
  for (uint i = 0; i < E; ++i) row.at[i] = metal::fma(delta, key.at[i], row.at[i]);
}

// The delta in the log of a token that changes nothing: fma(kNoDelta, 0, s) is s, also where s is −0.
constant constexpr float kNoDelta = -0.0f;

// The least power of two that is at least E, 1 … 8.
constexpr uint power_of_two(uint E) { return E > 4 ? 8 : E > 2 ? 4 : E; }

// body(E) for the number of elements that a lane has of a row of `keyDim`; 2, 3, 4, 6 or 8.
#define MLXTS_FOR_SHARE(keyDim, body)                     \
  switch (((keyDim) + mlxts::kSimd - 1) / mlxts::kSimd) { \
    case 1:                                               \
    case 2:                                               \
      return body(2);                                     \
    case 3:                                               \
      return body(3);                                     \
    case 4:                                               \
      return body(4);                                     \
    case 5:                                               \
    case 6:                                               \
      return body(6);                                     \
    default:                                              \
      return body(8);                                     \
  }

}  // namespace mlxts
