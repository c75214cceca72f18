// sdpa in bf16 with kWide columns where warpgroups multiply: each of two has 64 query rows, with their sums, scores and
// weights, in registers: where a product leaves scores, the left operand of the next has weights. Tiles of keys and
// values, which a third warpgroup brings, lie in threadgroup memory as right operands. A tile is multiplied in two
// blocks, so that the softmax of one goes on beside the products of the other, and of the other warpgroup.
#pragma once
#include "metal_sdpa.h"

namespace mlxts {

constant constexpr uint kWarpgroup = 128, kAttending = SDPA_WARPGROUP_THREADS / kWarpgroup - 1;
constant constexpr uint kBlockKeys = 64, kTileKeys = 2 * kBlockKeys;
// Bytes: 64 elements of a row; such halves of a tile's rows; a tile of keys and one of values.
constant constexpr uint kPanelRow = 128, kPanel = kTileKeys * kPanelRow, kTilesBytes = 4 * kPanel;
static_assert(kWide == 128 && SDPA_TILE_ROWS == kAttending * 64, "a warpgroup has 64 rows of two panels");
// Registers of a thread that brings tiles, and of one that multiplies.
constant constexpr uint kFewRegisters = 24, kManyRegisters = 240;

// Two pairs of tiles, of which one is multiplied while the next one is on its way.
struct AttentionTiles {
  threadgroup uchar* tiles;

  METAL_FUNC threadgroup uchar* keys(uint turn) const thread { return tiles + turn % 2 * kTilesBytes; }
  METAL_FUNC threadgroup uchar* values(uint turn) const thread { return keys(turn) + 2 * kPanel; }
  // Where all threads meet: the tiles of a turn are there, and those of the turn before have been used.
  METAL_FUNC static void meet() { machine::parts_meet<SDPA_WARPGROUP_THREADS>(); }
};

// Thread `index` of the warpgroup that brings tiles. Keys that nobody sees are zeros.
struct TilesBringer {
  static constant constexpr uint kRowsAtOnce = kWarpgroup / 8;

  AttentionTiles memory;
  device const bfloat *keys, *values;  // at the thread's own pieces of the next tile
  uint left, row, to;                  // keys from the thread's own row on; that row; where its pieces go in a panel

  METAL_FUNC TilesBringer(AttentionTiles memory, device const bfloat* k, device const bfloat* v, uint end, uint index)
      : memory(memory), row(index / 8) {
    const uint piece = index % 8, from = row * kWide + piece * 8;
    keys = k + from, values = v + from;
    left = end;
    to = row * kPanelRow + (piece ^ row % 8) * 16;
  }

  METAL_FUNC void start(uint turn) {
    MLXTS_UNROLL for (uint i = 0; i < kTileKeys; i += kRowsAtOnce) {
      const uint bytes = row + i < left ? 16 : 0;
      MLXTS_UNROLL for (uint panel = 0; panel < 2; ++panel) {
        const uint from = bytes > 0 ? i * kWide + panel * 64 : 0, at = to + i * kPanelRow + panel * kPanel;
        machine::copy_start<16>(memory.keys(turn) + at, keys + from, bytes);
        machine::copy_start<16>(memory.values(turn) + at, values + from, bytes);
      }
    }
    machine::copies_end();
    keys += kTileKeys * kWide, values += kTileKeys * kWide;
    left -= metal::min(left, kTileKeys);
  }
  METAL_FUNC void run() {
    const uint turns = (left + kTileKeys - 1) / kTileKeys;
    start(0);
#pragma unroll 1
    for (uint turn = 0; turn < turns; ++turn) {
      machine::copies_wait<0>();
      machine::warpgroup_operands_written();
      AttentionTiles::meet();
      if (turn + 1 < turns) start(turn + 1);
    }
  }
};

// A simdgroup of a warpgroup that multiplies: it has 16 of its rows.
struct RowsAttender {
  typedef TileSum<16, kBlockKeys> Scores;
  typedef TileLeft<bfloat, 16, kBlockKeys> Weights;

  AttentionTiles memory;
  TileLeft<bfloat, 16, kWide> queries;
  AttentionRows<16, kWide> rows;
  RowSoftmax<bfloat, 16, kWide, OwnSums<bfloat, 16>> softmax;
  uint seen_by_all, seen_by_some;  // of the warpgroup's rows

  METAL_FUNC RowsAttender(AttentionTiles memory, device const bfloat* q, thread const AttentionTile& tile,
                          uint simdgroup, uint lane)
      : memory(memory) {
    start_rows(rows, softmax, simdgroup * 16, tile.scale);
    const uint first = simdgroup / 4 * 64;
    seen_by_all = tile.limit(first);
    seen_by_some = first < tile.rows ? tile.limit(metal::min(first + 64, tile.rows) - 1) : 0;
    MLXTS_UNROLL for (uint r = 0; r < 2; ++r) {
      const uint row = metal::min(rows.first + 8 * r + matrix_row(lane), tile.rows - 1);
      device const bfloat* from = q + tile.address(row) + matrix_column(lane);
      MLXTS_UNROLL for (uint c = 0; c < kWide / 8; ++c)
          queries.blocks[0][c / 2][r + c % 2 * 2] = *(device const uint*)(from + 8 * c);
    }
  }

  // Begin the products of all queries and a block's keys, and those of weights and its values.
  METAL_FUNC void multiply_keys(thread Scores& scores, uint turn, uint half) {
    const ulong keys = machine::warpgroup_operand(memory.keys(turn) + half * kBlockKeys * kPanelRow);
    MLXTS_UNROLL for (uint k = 0; k < kWide / 16; ++k)
        machine::warpgroup_bf16_k16(scores.blocks[0], queries.blocks[0][k], keys + k / 4 * (kPanel >> 4) + k % 4 * 2,
                                    k > 0);
    machine::warpgroup_end();
  }
  METAL_FUNC void multiply_values(thread Weights& weights, uint turn, uint half) {
    machine::held(weights.blocks[0]);
    machine::held(rows.sums.blocks[0]);
    machine::warpgroup_begin();
    const ulong values = machine::warpgroup_rows(memory.values(turn) + half * kBlockKeys * kPanelRow, kPanel);
    MLXTS_UNROLL for (uint k = 0; k < kBlockKeys / 16; ++k)
        machine::warpgroup_bf16_k16_rows(rows.sums.blocks[0], weights.blocks[0][k],
                                         values + k * (16 * kPanelRow >> 4));
    machine::warpgroup_end();
  }

  // When it returns, no product is under way: a warpgroup waits as one, but its simdgroups scale sums each by itself.
  METAL_FUNC Weights weigh(thread Scores& scores) {
    float highest[2], factors[2];
    const bool higher = softmax.higher(scores, rows, highest);
    if (higher) softmax.refer_to(highest, rows, factors);
    const Weights weights = softmax.powers(scores, rows);
    machine::warpgroup_wait<0>();
    machine::held(rows.sums.blocks[0]);
    if (higher) scale_rows(rows.sums, factors);
    return weights;
  }

  // A tile that all rows see.
  METAL_FUNC void add_tile(uint turn) {
    Scores first, second;
    machine::warpgroup_wait<0>();  // none is under way, but only so the compiler knows it
    machine::held(rows.sums.blocks[0]);
    machine::held(queries.blocks[0]);
    machine::warpgroup_begin();
    multiply_keys(first, turn, 0);
    multiply_keys(second, turn, 1);
    machine::warpgroup_wait<1>();
    machine::held(first.blocks[0]);
    Weights of_first = weigh(first);
    machine::held(second.blocks[0]);
    machine::held(queries.blocks[0]);
    multiply_values(of_first, turn, 0);
    Weights of_second = weigh(second);
    machine::held(of_first.blocks[0]);
    multiply_values(of_second, turn, 1);
    machine::warpgroup_wait<0>();
    machine::held(of_second.blocks[0]);
    machine::held(rows.sums.blocks[0]);
  }

  // Whether a block's values from key `first` on are finite.
  METAL_FUNC bool all_finite(threadgroup const uchar* values, uint first, uint lane) const {
    uint carry = 0;
    for (uint at = first * kPanelRow + lane * 16; at < kBlockKeys * kPanelRow; at += kSimd * 16)
      MLXTS_UNROLL for (uint panel = 0; panel < 2; ++panel)
          carry |= exponent_carries<bfloat>(*(threadgroup const uint4*)(values + panel * kPanel + at));
    return metal::simd_all((carry & kCarries) == 0);
  }
  // Each key goes to the rows that see it, see add_seen_values.
  METAL_FUNC void add_seen(thread const Weights& x, threadgroup const uchar* values, thread const AttentionTile& tile,
                           uint block, uint lane) {
    const Scores weights = as_sum(x);
    for (uint key = 0; key < kBlockKeys; ++key) {
      MLXTS_UNROLL for (uint r = 0; r < 2; ++r) {
        float weight = 0.0f;
        MLXTS_UNROLL for (uint i = 0; i < kBlockKeys / 4; ++i)
            weight += 8 * (i / 2) + matrix_column(lane) + i % 2 == key ? weights.at(r, i / 2, i % 2) : 0.0f;
        weight = row_sum(weight);
        if (!tile.sees(rows.first + 8 * r + matrix_row(lane), block + key)) continue;
        MLXTS_UNROLL for (uint c = 0; c < kWide / 8; ++c) {
          const uint at = c / 8 * kPanel + key * kPanelRow + (c % 8 ^ key % 8) * 16 + matrix_column(lane) * 2;
          const uint pair = *(threadgroup const uint*)(values + at);
          rows.sums.at(r, c, 0) += weight * Pairs<bfloat>::low(pair);
          rows.sums.at(r, c, 1) += weight * Pairs<bfloat>::high(pair);
        }
      }
    }
  }
  // A block that some rows do not see, or see in part.
  METAL_FUNC void add_block(uint turn, uint half, uint block, thread const AttentionTile& tile, uint lane) {
    Scores scores;
    machine::held(queries.blocks[0]);
    machine::warpgroup_begin();
    multiply_keys(scores, turn, half);
    machine::warpgroup_wait<0>();
    machine::held(scores.blocks[0]);
    machine::held(queries.blocks[0]);
    mask(scores, tile, rows.first + matrix_row(lane), block + matrix_column(lane));
    Weights weights = softmax.weights(scores, rows);
    threadgroup const uchar* values = memory.values(turn) + half * kBlockKeys * kPanelRow;
    if (all_finite(values, metal::min(left(block, seen_by_all), kBlockKeys), lane)) {
      multiply_values(weights, turn, half);
      machine::warpgroup_wait<0>();
      machine::held(weights.blocks[0]);
      machine::held(rows.sums.blocks[0]);
    } else {
      add_seen(weights, values, tile, block, lane);
    }
  }

  METAL_FUNC void run(thread const AttentionTile& tile, uint lane) {
    uint turn = 0, first = 0;
#pragma unroll 1
    for (; first + kTileKeys <= seen_by_all; first += kTileKeys, ++turn) {
      AttentionTiles::meet();
      add_tile(turn);
    }
#pragma unroll 1
    for (; first < tile.end; first += kTileKeys, ++turn) {
      AttentionTiles::meet();
#pragma unroll 1
      for (uint half = 0; half < 2; ++half) {
        const uint block = first + half * kBlockKeys;
        if (block < seen_by_some) add_block(turn, half, block, tile, lane);
      }
    }
  }
  METAL_FUNC void store(device bfloat* out, thread const AttentionTile& tile, uint lane) const {
    MLXTS_UNROLL for (uint r = 0; r < 2; ++r) {
      const uint row = rows.first + 8 * r + matrix_row(lane);
      const float inverse = tile.end == 0 ? 0.0f : 1.0f / softmax.denominators.total(r);
      if (row >= tile.rows) continue;
      device bfloat* to = out + tile.address(row) + matrix_column(lane);
      MLXTS_UNROLL for (uint c = 0; c < kWide / 8; ++c)
          *(device uint*)(to + 8 * c) =
              Pairs<bfloat>::of(rows.sums.at(r, c, 0) * inverse, rows.sums.at(r, c, 1) * inverse);
    }
  }
};

METAL_FUNC void attend_by_warpgroups(device const bfloat* q, device const bfloat* keys, device const bfloat* values,
                                     device bfloat* out, thread const AttentionTile& tile, SdpaScratch scratch,
                                     uint index, uint lane, uint simdgroup) {
  const AttentionTiles memory = {scratch.tiles};
  if (machine::shuffle(simdgroup, 0) / 4 == kAttending) {
    machine::fewer_registers<kFewRegisters>();
    TilesBringer(memory, keys, values, tile.end, index % kWarpgroup).run();
    return;
  }
  machine::more_registers<kManyRegisters>();
  RowsAttender attender(memory, q, tile, simdgroup, lane);
  attender.run(tile, lane);
  attender.store(out, tile, lane);
}

}  // namespace mlxts
