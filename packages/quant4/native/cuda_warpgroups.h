// Products with many rows of x on GPUs whose warpgroups multiply (compute capability 9.0): W times xᵀ, so that the
// codes, which are decoded in registers, are the left operand, and x, which is copied as it is, the right one. A
// threadgroup has kRows rows of W, 64 to a warpgroup, against kTokens rows of x. One more warpgroup, or warp, brings
// tiles of 64 columns and adds up rows of x, while the others multiply; all meet once in two tiles.
//
// A code is multiplied as 16 + q, which takes the fewest instructions: products += scale·Σ(16 + q)x. What is missing,
// the sum over groups of bias·Σx + scale·(−16 Σx), is a product, too, of four groups at a time: biases and scales are
// its left operand as they are, and a sum of x, an f32, is three bf16 of the right one.
#pragma once
#include "cuda_transposed_rows.h"
#include "product_metal.h"

namespace mlxts {

constant constexpr uint kWarpgroup = 128;
// Columns of a tile; tiles in threadgroup memory, those of a turn, and those for which all threads meet once.
constant constexpr uint kColumns = 64, kStages = 8, kUnrolled = 4, kTogether = 2;
constant constexpr uint kRowBytes = 2 * kColumns;  // of x; of W a quarter
// Registers of a thread that brings tiles, and of one that multiplies.
constant constexpr uint kFewRegisters = 56, kManyRegisters = 224;

// `Bringers` threads bring tiles: a warpgroup, or where several threadgroups share a multiprocessor one warp.
template <uint Warpgroups, uint Tokens, uint Bringers = kWarpgroup>
struct WarpgroupTile {
  static constant constexpr uint kRows = 64 * Warpgroups, kTokens = Tokens, kBringers = Bringers;
  static constant constexpr uint kThreads = Warpgroups * kWarpgroup + kBringers;
  static constant constexpr uint kXBytes = kTokens * kRowBytes, kWBytes = kRows * kRowBytes / 4;

  // Tiles of x, of which the last is sums of rows of x as right operands, and of W, of which the last is ones.
  threadgroup uchar *x_tiles, *w_tiles;

  METAL_FUNC threadgroup uchar* x(uint stage) const thread { return x_tiles + stage * kXBytes; }
  METAL_FUNC threadgroup uchar* sums() const thread { return x(kStages); }
  METAL_FUNC threadgroup uchar* ones() const thread { return w(kStages); }
  METAL_FUNC threadgroup uchar* w(uint stage) const thread { return w_tiles + stage * kWBytes; }
  // Where all threads meet while tile t is multiplied, the first of two: the two after these are there, the two before
  // them are done, and x has been added up as far as tile t + 1.
  METAL_FUNC static void meet() { machine::parts_meet<kThreads>(); }
};

METAL_FUNC uint high_bits(uint x) { return x & 0xffff0000u; }
// An f32 as three bf16, in the high halves of registers.
struct ThreeParts {
  uint high, middle, low;

  METAL_FUNC explicit ThreeParts(float x) : high(high_bits(as_type<uint>(x))) {
    const float rest = x - as_type<float>(high);
    middle = high_bits(as_type<uint>(rest));
    low = as_type<uint>(rest - as_type<float>(middle));
  }
  METAL_FUNC uint first_two() const thread { return machine::bytes_of(high, middle, 0x7632); }
  METAL_FUNC uint last() const thread { return low >> 16; }
};

// What the threads do that bring tiles, of which this is number `index`. Rows that do not exist are the last once more,
// or zeros: nobody stores their products.
template <typename Tile>
struct TileBringer {
  static constant constexpr uint kBringers = Tile::kBringers, kTokens = Tile::kTokens;
  static constant constexpr uint kXOwn = Tile::kXBytes / 16 / kBringers, kWOwn = Tile::kWBytes / 16 / kBringers;
  static constant constexpr uint kOnes = 0x3f803f80u;  // two in bf16
  static constant constexpr bool kOneWarp = kBringers == kSimd;
  // Whether rows of x that do not exist are brought: there are no registers to tell them from others.
  static constant constexpr bool kAllRows = kTokens == 128;
  // Rows of which all threads bring pieces at once.
  static constant constexpr uint kXRows = kBringers / 8, kWRows = kBringers / 2;
  // Where pieces of a thread lie in their rows: of every eighth row in the same place.
  static constant constexpr uint kPlaces = kXRows < 8 ? 8 / kXRows : 1;
  Tile tile;
  device const uchar *x_from, *w_from;
  uint x_offsets[kXOwn], w_offsets[kWOwn];  // in bytes
  threadgroup uchar *x_to[kPlaces], *w_to;
  uint tiles, x_rows, index;  // rows of x from this thread's first one on

  template <typename XAt>
  METAL_FUNC TileBringer(Tile tile, device const bfloat* x, XAt x_at, device const uint* w, uint cols, uint m,
                         uint rows, uint index)
      : tile(tile), tiles(cols / kColumns), index(index) {
    const uint x_row = index / 8, piece = index % 8, w_row = index / 2;
    x_from = (device const uchar*)x;
    w_from = (device const uchar*)w;
    x_rows = m > x_row ? m - x_row : 0;
    MLXTS_UNROLL for (uint i = 0; i < kXOwn; ++i) x_offsets[i] =
        uint(x_at(metal::min(x_row + i * kXRows, m - 1)) - x) * 2 + piece * 16;
    MLXTS_UNROLL for (uint i = 0; i < kWOwn; ++i) w_offsets[i] =
        metal::min(w_row + i * kWRows, rows - 1) * (cols / 2) + index % 2 * 16;
    MLXTS_UNROLL for (uint i = 0; i < kPlaces; ++i) x_to[i] =
        tile.x(0) + x_row * kRowBytes + (piece ^ (x_row + i * kXRows) % 8) * 16;
    w_to = tile.w(0) + index * 16;
  }

  // The next tiles, from number t on, for which all threads meet once.
  METAL_FUNC void start(uint t) {
    if (t < tiles) {
      const uint x = t % kStages * Tile::kXBytes;
      threadgroup uchar* const w = w_to + t % kStages * Tile::kWBytes;
      MLXTS_UNROLL for (uint n = 0; n < kTogether; ++n) {
        MLXTS_UNROLL for (uint i = 0; i < kXOwn; ++i)
            machine::copy_start<16>(x_to[i % kPlaces] + x + n * Tile::kXBytes + i * kXRows * kRowBytes,
                                    x_from + x_offsets[i] + n * kRowBytes,
                                    kAllRows || i * kXRows < x_rows ? 16 : 0);
        MLXTS_UNROLL for (uint i = 0; i < kWOwn; ++i)
            machine::copy_start<16>(w + n * Tile::kWBytes + i * kBringers * 16,
                                    w_from + w_offsets[i] + n * (kRowBytes / 4));
      }
      x_from += kTogether * kRowBytes;
      w_from += kTogether * (kRowBytes / 4);
    }
    machine::copies_end();
  }

  METAL_FUNC void store_sum(uint row, uint t, float sum) const {
    const ThreeParts of_bias(sum), of_scale(-16.0f * sum);
    *(threadgroup uint4*)(tile.sums() + row * kRowBytes + (t % 8 ^ row % 8) * 16) =
        uint4(of_bias.first_two(), of_bias.last(), of_scale.first_two(), of_scale.last());
  }

  // Sums of the rows of x in tiles t and t + 1, as products with ones. Those of a warpgroup have 64 rows at a time, the
  // first and the last 64, and go on beside the others': a warp's own, with 16 rows at a time, wait for these.
  static constant constexpr uint kAtOnce = kOneWarp ? 16 : 64, kBlocks = (kTokens + kAtOnce - 1) / kAtOnce;
  typedef float RowSums[kTogether][kBlocks][4];
  METAL_FUNC static uint first_row(uint block) { return kOneWarp ? 16 * block : block * (kTokens - 64); }
  METAL_FUNC void begin_sums(thread RowSums& sums, uint t) const {
    if constexpr (kOneWarp) {
      // Matrix i of four, of which this lane names a row, has rows i % 2 * 8 … of pieces 2 k + i / 2.
      const uint row = index % 16, piece = index / 16;
      MLXTS_UNROLL for (uint n = 0; n < kTogether; ++n) MLXTS_UNROLL for (uint b = 0; b < kBlocks; ++b) {
        MLXTS_UNROLL for (uint e = 0; e < 4; ++e) sums[n][b][e] = 0.0f;
        MLXTS_UNROLL for (uint k = 0; k < 4; ++k) {
          uint x[4];
          machine::load_matrices(x[0], x[1], x[2], x[3], tile.x((t + n) % kStages) + (first_row(b) + row) * kRowBytes +
                                                             (2 * k + piece ^ row % 8) * 16);
          machine::mma_bf16_k16(sums[n][b], x[0], x[1], x[2], x[3], kOnes, kOnes);
        }
      }
    } else {
      const ulong ones = machine::warpgroup_operand(tile.ones());
      machine::held(sums);
      machine::warpgroup_begin();
      MLXTS_UNROLL for (uint n = 0; n < kTogether; ++n) MLXTS_UNROLL for (uint b = 0; b < kBlocks; ++b) {
        const ulong x = machine::warpgroup_operand(tile.x((t + n) % kStages) + first_row(b) * kRowBytes);
        MLXTS_UNROLL for (uint k = 0; k < 4; ++k) machine::warpgroup_bf16_k16(sums[n][b], x + 2 * k, ones, k > 0);
      }
      machine::warpgroup_end();
    }
  }
  // Four lanes have the same sums, of two rows of each block, eight apart: each lane stores those of one row, of one
  // tile where they are a warp's own, else of one block.
  METAL_FUNC void finish_sums(thread RowSums& sums, uint t) const {
    const uint lane = index % 32, half_of_four = lane % 4 / 2, second = lane % 2, row = second * 8 + lane / 4;
    if constexpr (kOneWarp) {
      MLXTS_UNROLL for (uint n = 0; n < kTogether; n += 2) MLXTS_UNROLL for (uint b = 0; b < kBlocks; ++b) {
        thread const float *first_tile = sums[n][b], *second_tile = sums[n + 1][b];
        const float first = second ? first_tile[2] : first_tile[0], last = second ? second_tile[2] : second_tile[0];
        store_sum(first_row(b) + row, t + n + half_of_four, half_of_four > 0 ? last : first);
      }
    } else {
      machine::warpgroup_wait<0>();
      machine::held(sums);
      const uint own = first_row(half_of_four) + index / 32 * 16 + row;
      if (half_of_four > 0 && own < 64) return;  // of both the first and the last 64
      MLXTS_UNROLL for (uint n = 0; n < kTogether; ++n) {
        thread const float *first_block = sums[n][0], *last_block = sums[n][kBlocks - 1];
        const float first = second ? first_block[2] : first_block[0], last = second ? last_block[2] : last_block[0];
        store_sum(own, t + n, half_of_four > 0 ? last : first);
      }
    }
  }

  // Once all but so many later pairs of tiles have arrived.
  template <uint Later>
  METAL_FUNC void meet() const {
    machine::copies_wait<Later>();
    machine::warpgroup_operands_written();
    Tile::meet();
  }

  METAL_FUNC void run() {
    constexpr uint kAhead = kStages / kTogether - 1;
    MLXTS_UNROLL for (uint i = 0; i < kAhead; ++i) start(i * kTogether);
    for (uint at = index * 16; at < Tile::kXBytes; at += kBringers * 16)
      *(threadgroup uint4*)(tile.sums() + at) = uint4(0, 0, 0, 0);
    if (!kOneWarp && index < 64) *(threadgroup uint4*)(tile.ones() + index * 16) = uint4(kOnes);
    meet<kAhead - 1>();
    RowSums sums;
    begin_sums(sums, 0);
    finish_sums(sums, 0);
    for (uint t = kTogether; t < tiles; t += kTogether) {
      meet<kAhead - 2>();
      begin_sums(sums, t);
      start(t + (kAhead - 1) * kTogether);
      finish_sums(sums, t);
    }
    meet<0>();
  }
};

// What the others do: a warpgroup's rows of W against all rows of x, in two halves, so that one is scaled while the
// other is multiplied; few rows are not halved, and multiplied with the next tile meanwhile. A lane has two rows of W,
// eight apart, and of each eight rows of x two.
template <typename Tile>
struct TileMultiplier {
  static constant constexpr uint kTokens = Tile::kTokens;
  static constant constexpr uint kParts = kTokens < 64 ? 1 : 2, kPart = kTokens / kParts, kBlocks = kPart / 8;
  // Whether words wait in registers to be decoded: the largest tile has none left for them, nor have those that share a
  // multiprocessor.
  static constant constexpr bool kWordsAhead = kTokens >= 64 && kTokens < 128;

  Tile tile;
  device const uchar *scales, *biases;
  ulong second;  // row's scales are so many bytes further
  threadgroup const uchar* words_from;
  uint tiles, groups, pair;  // tiles of a group
  uint factor;               // which bytes of scales, then biases, meet this lane's columns of sums: one of them, twice
  float total[kParts][kBlocks][4], products[2][kBlocks][4];
  uint codes[2][4][4], offsets[2][4], words[2][8];
  uint2 held[4], now[4];  // scales of two rows, then biases, of four tiles
  float scale[2];

  METAL_FUNC TileMultiplier(Tile tile, AffineMatrix<bfloat, 4> w, uint row0, uint simdgroup, uint lane)
      : tile(tile),
        tiles(w.cols / kColumns),
        groups(w.groupSize / kColumns),
        pair(lane % 4),
        factor(pair < 2 ? 0x5454 : 0x1010) {
    const uint own = 16 * simdgroup + lane / 4, last = w.rows - 1;
    const ulong row_bytes = ulong(w.cols / w.groupSize) * sizeof(bfloat);
    const uint row = metal::min(row0 + own, last);
    scales = (device const uchar*)w.scales + row * row_bytes;
    biases = (device const uchar*)w.biases + row * row_bytes;
    second = (metal::min(row0 + own + 8, last) - row) * row_bytes;
    words_from = tile.w(0) + own * (kRowBytes / 4);
    MLXTS_UNROLL for (uint i = 0; i < 2; ++i) MLXTS_UNROLL for (uint b = 0; b < kBlocks; ++b)
        MLXTS_UNROLL for (uint e = 0; e < 4; ++e) total[i % kParts][b][e] = products[i][b][e] = 0.0f;
    MLXTS_UNROLL for (uint i = 0; i < 2; ++i) MLXTS_UNROLL for (uint e = 0; e < 4; ++e) offsets[i][e] = 0;
  }

  // Scales and biases of four tiles from tile t on.
  METAL_FUNC void load_scales(uint t) {
    const uint at = metal::min(t, tiles - kUnrolled);
    MLXTS_UNROLL for (uint i = 0; i < 4; ++i) {
      device const uchar* from = (i < 2 ? scales : biases) + (i % 2 == 0 ? 0 : second);
      if (groups == 1) {
        held[i] = *(device const uint2*)(from + at * 2);
      } else {  // of 128 columns: each group twice
        const uint two = *(device const uint*)(from + at);
        held[i] = uint2(machine::bytes_of(two, two, 0x1010), machine::bytes_of(two, two, 0x3232));
      }
    }
  }
  // The scales of tile u of four; with its biases they become the left operand that meets the sums of x.
  METAL_FUNC void take_scales(uint u) {
    MLXTS_UNROLL for (uint r = 0; r < 2; ++r) {
      const uint scales_of_two = u < 2 ? now[r].x : now[r].y, biases_of_two = u < 2 ? now[2 + r].x : now[2 + r].y;
      scale[r] = as_type<float>(u % 2 == 0 ? scales_of_two << 16 : high_bits(scales_of_two));
      offsets[u / 2][u % 2 * 2 + r] = machine::bytes_of(scales_of_two, biases_of_two, factor + u % 2 * 0x2222);
    }
  }

  // Of tile t, or of the last one.
  METAL_FUNC void load_words(uint t) {
    threadgroup const uchar* from = words_from + metal::min(t, tiles - 1) % kStages * Tile::kWBytes;
    MLXTS_UNROLL for (uint r = 0; r < 2; ++r) MLXTS_UNROLL for (uint i = 0; i < 2; ++i) {
      const uint4 four = *(threadgroup const uint4*)(from + r * 8 * (kRowBytes / 4) + i * 16);
      MLXTS_UNROLL for (uint e = 0; e < 4; ++e) words[r][4 * i + e] = four[e];
    }
  }
  // The two codes of a byte go to the halves of a register by a product: its bits once more, 12 places further.
  METAL_FUNC void decode(uint set) {
    MLXTS_UNROLL for (uint k = 0; k < 4; ++k) MLXTS_UNROLL for (uint i = 0; i < 4; ++i) {
      const uint byte = machine::bytes_of(words[i % 2][2 * k + i / 2], 0, 0x4440u + pair);
      codes[set][k][i] = machine::and_or(byte * 0x8008u, 0x00780078u, 0x41804180u);  // 16 + q
    }
    if (kParts > 1 && !kWordsAhead) machine::settled(codes[set], tile.w(0), groups == 0);
    machine::held(codes[set]);
  }

  // The products of a part of x with the codes of a set; they have room for two parts, or for two sets.
  METAL_FUNC static uint place(uint part, uint set) { return kParts == 1 ? set : part; }
  METAL_FUNC void multiply(uint part, uint set, uint stage) {
    machine::held(products[place(part, set)]);
    machine::held(codes[set]);
    machine::warpgroup_begin();
    const ulong x = machine::warpgroup_operand(tile.x(stage) + part * kPart * kRowBytes);
    MLXTS_UNROLL for (uint k = 0; k < 4; ++k)
        machine::warpgroup_bf16_k16(products[place(part, set)], codes[set][k], x + 2 * k, k > 0);
    machine::warpgroup_end();
  }
  // Adds what scales and biases make of the sums of x in four tiles, of which `block` is the number.
  METAL_FUNC void multiply_offsets(uint block) {
    machine::held(total);
    machine::held(offsets);
    machine::warpgroup_begin();
    MLXTS_UNROLL for (uint p = 0; p < kParts; ++p) {
      const ulong x = machine::warpgroup_operand(tile.sums() + p * kPart * kRowBytes) + block % 2 * 4;
      MLXTS_UNROLL for (uint k = 0; k < 2; ++k) machine::warpgroup_bf16_k16(total[p], offsets[k], x + 2 * k, true);
    }
    machine::warpgroup_end();
  }
  METAL_FUNC void add_scaled(uint part, uint set) {
    thread auto& sums = products[place(part, set)];
    machine::held(sums);
    MLXTS_UNROLL for (uint b = 0; b < kBlocks; ++b) MLXTS_UNROLL for (uint e = 0; e < 4; ++e)
        total[part][b][e] = metal::fma(scale[e / 2], sums[b][e], total[part][b][e]);
  }

  METAL_FUNC void run() {
    load_scales(0);
    Tile::meet();
    load_words(0);
    decode(0);
    if (kWordsAhead) load_words(1);
    // Products end with the four tiles that a turn has: the compiler knows none that go on from turn to turn.
    for (uint t = 0; t < tiles; t += kUnrolled) {
      multiply_offsets(t / kUnrolled + 1);  // of the turn before; first zeros
      MLXTS_UNROLL for (uint p = 0; p < kParts; ++p) multiply(p, 0, t % kStages);
      MLXTS_UNROLL for (uint i = 0; i < 4; ++i) now[i] = held[i];
      load_scales(t + kUnrolled);
      MLXTS_UNROLL for (uint u = 0; u < kUnrolled; ++u) {
        const uint next = (t + u + 1) % kStages, set = u % 2;
        if (!kWordsAhead) load_words(t + u + 1);
        decode(1 - set);
        if (u % kTogether == 0) Tile::meet();
        if (kWordsAhead) load_words(t + u + 2);
        const bool more = u + 1 < kUnrolled;
        if (kParts == 1 && more) multiply(0, 1 - set, next);
        if (kParts == 1 && !more)
          machine::warpgroup_wait<0>();
        else
          machine::warpgroup_wait<1>();
        if (u == 0) {
          machine::held(total);
          machine::held(offsets);
        }
        take_scales(u);
        if (kParts == 1) {
          machine::held(codes[set]);
          add_scaled(0, set);
          continue;
        }
        add_scaled(0, set);
        if (more) {
          multiply(0, 1 - set, next);
          machine::warpgroup_wait<1>();
        } else {
          machine::warpgroup_wait<0>();
        }
        machine::held(codes[set]);
        add_scaled(kParts - 1, set);
        if (more) multiply(kParts - 1, 1 - set, next);
      }
    }
    multiply_offsets(tiles / kUnrolled + 1);
    machine::warpgroup_wait<0>();
    machine::held(total);
  }

  // Rounds the totals to rows of out, of which row i begins at out_at(i) and has `stride` elements, from row0 of W on;
  // m and `rows` are left.
  template <typename OutAt, typename Added>
  METAL_FUNC void store(device const bfloat* out, OutAt out_at, uint stride, uint row0, uint m, uint rows,
                        uint simdgroup, uint lane, Added added) const {
    const uint first = 16 * simdgroup, row = first + lane / 4;
    const float bias[2] = {row < rows ? added(row) : 0.0f, row + 8 < rows ? added(row + 8) : 0.0f};
    // Where the words of these rows of W were: a tile's have room for 16 rows of out.
    store_transposed<kStages, Tile::kWBytes>(total, bias, tile.w(0) + first * (kRowBytes / 4), out_at, row0 + first, m,
                                             stride, stride % 8 == 0 && (ulong(out) & 15) == 0, lane);
  }
};

// A threadgroup's products with rows of W from row0 on: row i of m rows of x begins at x_at(i), the row of out that it
// becomes at out_at(i).
template <typename Tile, typename XAt, typename OutAt, typename Added>
METAL_FUNC void multiply_by_warpgroups(Tile tile, XAt x_at, AffineMatrix<bfloat, 4> w, OutAt out_at, uint m, uint row0,
                                       uint index, uint simdgroup, uint lane, Added added) {
  // With three warpgroups 168 registers for each thread; those that multiply need more.
  constexpr uint kMultipliers = Tile::kThreads - Tile::kBringers;
  constexpr bool kMoved = Tile::kThreads == 3 * kWarpgroup;
  if (machine::shuffle(simdgroup, 0) >= kMultipliers / kSimd) {
    if (kMoved) machine::fewer_registers<kFewRegisters>();
    device const uint* words = w.words + ulong(row0) * (w.cols / 8);
    TileBringer<Tile>(tile, x_at.first, x_at, words, w.cols, m, w.rows - row0, index % Tile::kBringers).run();
    return;
  }
  if (kMoved) machine::more_registers<kManyRegisters>();
  TileMultiplier<Tile> multiplier(tile, w, row0, simdgroup, lane);
  multiplier.run();
  multiplier.store(out_at.first, out_at, w.rows, row0, m, w.rows - row0, simdgroup, lane, added);
}

}  // namespace mlxts
