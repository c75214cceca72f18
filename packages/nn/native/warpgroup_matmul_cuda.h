// Products of bf16 with many rows of x where warpgroups multiply, as W times xᵀ: a threadgroup has kProductRows rows of
// W, 64 to a warpgroup, against Tokens rows of x. Tiles of both, of kProductColumns columns, lie in threadgroup memory
// as operands; a third warpgroup brings them. All threads meet once in a tile.
#pragma once
#include "bias_metal.h"
#include "cuda_transposed_rows.h"
#include "matmul.params.h"
#include "metal_tile.h"

namespace mlxts {

constant constexpr uint kProductThreads = MATMUL_WARPGROUP_THREADS, kProductRows = MATMUL_WARPGROUP_ROWS;
constant constexpr uint kProductColumns = MATMUL_WARPGROUP_COLUMNS, kProductRowBytes = 2 * kProductColumns;
constant constexpr uint kBringers = 128, kMultipliers = kProductThreads - kBringers;
static_assert(kProductRows == kMultipliers / 2 && kProductRowBytes == 128, "a warpgroup has 64 rows of 128 bytes");
// Registers of a thread that brings tiles, and of one that multiplies.
constant constexpr uint kBringersRegisters = 40, kMultipliersRegisters = 232;

template <uint Tokens>
struct ProductTiles {
  static constant constexpr uint kXBytes = Tokens * kProductRowBytes, kWBytes = kProductRows * kProductRowBytes;
  static constant constexpr uint kStages = MATMUL_WARPGROUP_BYTES / (kXBytes + kWBytes);
  threadgroup uchar *x_tiles, *w_tiles;

  // Of columns from t · kProductColumns on.
  METAL_FUNC threadgroup uchar* x(uint t) const thread { return x_tiles + t % kStages * kXBytes; }
  METAL_FUNC threadgroup uchar* w(uint t) const thread { return w_tiles + t % kStages * kWBytes; }
  // Where all threads meet before tile t is multiplied: it is there, and tile t − 2 is done.
  METAL_FUNC static void meet() { machine::parts_meet<kProductThreads>(); }
};

// Brings the next columns of `Rows` rows; a thread has a piece of every kAtOnce-th. Rows that do not exist are others
// once more: nobody stores their products.
template <uint Rows>
struct RowsBringer {
  static constant constexpr uint kAtOnce = kBringers / 8;
  device const uchar* from;
  ulong stride;   // bytes of kAtOnce rows
  uint left, to;  // rows from this thread's first one on; where its piece goes in a tile

  METAL_FUNC RowsBringer(device const bfloat* first, uint columns, uint rows, uint index)
      : stride(ulong(columns) * 2 * kAtOnce) {
    const uint row = index / 8, piece = index % 8;
    left = rows > row ? rows - row : 0;
    from = (device const uchar*)(first + (left > 0 ? row : 0) * ulong(columns)) + piece * 16;
    to = row * kProductRowBytes + (piece ^ row % 8) * 16;
  }
  METAL_FUNC void start(threadgroup uchar* tile) {
    device const uchar* row = from;
    MLXTS_UNROLL for (uint i = 0; i < Rows; i += kAtOnce) {
      machine::copy_start<16>(tile + to + i * kProductRowBytes, row);
      if (i + kAtOnce < left) row += stride;
    }
    from += kProductRowBytes;
  }
};

template <uint Tokens>
METAL_FUNC void bring_tiles(ProductTiles<Tokens> memory, device const bfloat* x, uint x_rows, device const bfloat* w,
                            uint w_rows, uint columns, uint index) {
  // A tile goes where the last but one was.
  constexpr uint kAhead = ProductTiles<Tokens>::kStages - 2;
  const uint tiles = columns / kProductColumns;
  RowsBringer<Tokens> x_rows_bringer(x, columns, x_rows, index);
  RowsBringer<kProductRows> w_rows_bringer(w, columns, w_rows, index);
  uint next = 0;
#pragma unroll 1
  for (; next < kAhead; ++next) {
    if (next < tiles) x_rows_bringer.start(memory.x(next)), w_rows_bringer.start(memory.w(next));
    machine::copies_end();
  }
#pragma unroll 1
  for (uint t = 0; t < tiles; ++t, ++next) {
    machine::copies_wait<kAhead - 1>();
    machine::warpgroup_operands_written();
    memory.meet();
    if (next < tiles) x_rows_bringer.start(memory.x(next)), w_rows_bringer.start(memory.w(next));
    machine::copies_end();
  }
  memory.meet();
}

// Of a simdgroup: 16 of the 64 rows of W that its warpgroup multiplies.
template <uint Tokens>
struct RowsMultiplier {
  static constant constexpr uint kBlocks = Tokens / 8;
  ProductTiles<Tokens> memory;
  float sums[1][kBlocks][4];

  METAL_FUNC explicit RowsMultiplier(ProductTiles<Tokens> memory) : memory(memory) {
    MLXTS_UNROLL for (uint b = 0; b < kBlocks; ++b) MLXTS_UNROLL for (uint e = 0; e < 4; ++e) sums[0][b][e] = 0.0f;
  }

  METAL_FUNC void run(uint tiles, uint warpgroup) {
#pragma unroll 1
    for (uint t = 0; t < tiles; ++t) {
      memory.meet();
      machine::warpgroup_begin();
      const ulong w = machine::warpgroup_operand(memory.w(t) + warpgroup * 64 * kProductRowBytes);
      const ulong x = machine::warpgroup_operand(memory.x(t));
      MLXTS_UNROLL for (uint k = 0; k < 4; ++k)
          machine::warpgroup_bf16_k16(sums[0], w + 2 * k, x + 2 * k, t + k > 0);
      machine::warpgroup_end();
      machine::warpgroup_wait<1>();
    }
    machine::warpgroup_wait<0>();
    machine::held(sums[0]);
    // Nobody needs the tiles any more.
    memory.meet();
  }

  // Row i of out, of which `rows` exist, begins at out_at(i) and has `columns`, of which these are from n0 on.
  template <typename OutAt>
  METAL_FUNC void store(OutAt out_at, uint rows, uint columns, uint n0, Bias<bfloat> bias, uint simdgroup,
                        uint lane) const {
    const uint first = n0 + 16 * simdgroup, own = first + lane / 4;
    const float added[2] = {own < columns ? bias(own) : 0.0f, own + 8 < columns ? bias(own + 8) : 0.0f};
    constexpr uint kRooms = Tokens / 16;
    store_transposed<kRooms, kTransposedBytes>(
        sums, added, memory.x_tiles + simdgroup * kRooms * kTransposedBytes, out_at, first, rows, columns,
        columns % 8 == 0 && (ulong(out_at.first) & 15) == 0, lane);
  }
};

// A threadgroup's outputs: rows of out from m0 on, in columns from n0 on.
template <uint Tokens>
METAL_FUNC void multiply_by_warpgroups(ProductTiles<Tokens> memory, device const bfloat* x, device const bfloat* weight,
                                       Bias<bfloat> bias, device bfloat* out, constant MatmulParams& p, uint m0,
                                       uint n0, uint index, uint simdgroup, uint lane) {
  if (machine::shuffle(simdgroup, 0) >= kMultipliers / kSimd) {
    machine::fewer_registers<kBringersRegisters>();
    bring_tiles(memory, x + ulong(m0) * p.k, p.m - m0, weight + ulong(n0) * p.k, p.n - n0, p.k, index % kBringers);
    return;
  }
  machine::more_registers<kMultipliersRegisters>();
  RowsMultiplier<Tokens> multiplier(memory);
  multiplier.run(p.k / kProductColumns, simdgroup / 4);
  multiplier.store(EvenRows<bfloat>{out + ulong(m0) * p.n, p.n}, p.m - m0, p.n, n0, bias, simdgroup, lane);
}

}  // namespace mlxts
