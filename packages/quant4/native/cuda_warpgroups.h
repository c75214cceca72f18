// Products with many rows of x on GPUs whose warpgroups multiply (compute capability 9.0): W times xᵀ, so that the
// codes, which are decoded in registers, are the left operand, and x, which is copied as it is, the right one. A
// threadgroup has kRows rows of W, 64 to a warpgroup, against kTokens rows of x. One more warpgroup brings tiles of 64
// columns and adds up rows of x, while the others multiply; all meet once in two tiles.
//
// A code is multiplied as 16 + q, which takes the fewest instructions: products += scale·Σ(16 + q)x. What is missing,
// the sum over groups of bias·Σx + scale·(−16 Σx), is a product, too, of four groups at a time: biases and scales are
// its left operand as they are, and a sum of x, an f32, is three bf16 of the right one.
#pragma once
#include "product_metal.h"

namespace mlxts {

constant constexpr uint kWarpgroup = 128;
// Columns of a tile; tiles in threadgroup memory, those of a turn, and those for which all threads meet once.
constant constexpr uint kColumns = 64, kStages = 8, kUnrolled = 4, kTogether = 2;
constant constexpr uint kRowBytes = 2 * kColumns;  // of x; of W a quarter
// Registers of a thread that brings tiles, and of one that multiplies.
constant constexpr uint kFewRegisters = 56, kManyRegisters = 224;

template <uint Warpgroups, uint Tokens>
struct WarpgroupTile {
  static constant constexpr uint kRows = 64 * Warpgroups, kTokens = Tokens;
  static constant constexpr uint kThreads = (Warpgroups + 1) * kWarpgroup;
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

// What the last warpgroup does, of which this is thread `index`. Rows that do not exist are the last once more: nobody
// stores their products.
template <uint Warpgroups, uint Tokens>
struct TileBringer {
  typedef WarpgroupTile<Warpgroups, Tokens> Tile;
  static constant constexpr uint kXOwn = Tile::kXBytes / 16 / kWarpgroup, kWOwn = Tile::kWBytes / 16 / kWarpgroup;
  // Rows of which all threads bring pieces at once.
  static constant constexpr uint kXRows = kWarpgroup / 8, kWRows = kWarpgroup / 2;
  Tile tile;
  device const uchar *x_from, *w_from;
  uint x_offsets[kXOwn], w_offsets[kWOwn];
  threadgroup uchar *x_to, *w_to;
  uint tiles, index;

  METAL_FUNC TileBringer(Tile tile, device const bfloat* x, device const uint* w, uint cols, uint m, uint rows,
                         uint index)
      : tile(tile), tiles(cols / kColumns), index(index) {
    const uint x_row = index / 8, piece = index % 8, w_row = index / 2;
    x_from = (device const uchar*)x;
    w_from = (device const uchar*)w;
    MLXTS_UNROLL for (uint i = 0; i < kXOwn; ++i) x_offsets[i] =
        metal::min(x_row + i * kXRows, m - 1) * (cols * 2) + piece * 16;
    MLXTS_UNROLL for (uint i = 0; i < kWOwn; ++i) w_offsets[i] =
        metal::min(w_row + i * kWRows, rows - 1) * (cols / 2) + index % 2 * 16;
    x_to = tile.x(0) + x_row * kRowBytes + (piece ^ x_row % 8) * 16;
    w_to = tile.w(0) + index * 16;
  }

  // The next tiles, from number t on, for which all threads meet once.
  METAL_FUNC void start(uint t) {
    if (t < tiles) {
      threadgroup uchar *const x = x_to + t % kStages * Tile::kXBytes, *const w = w_to + t % kStages * Tile::kWBytes;
      MLXTS_UNROLL for (uint n = 0; n < kTogether; ++n) {
        MLXTS_UNROLL for (uint i = 0; i < kXOwn; ++i)
            machine::copy_start<16>(x + n * Tile::kXBytes + i * kXRows * kRowBytes,
                                    x_from + x_offsets[i] + n * kRowBytes);
        MLXTS_UNROLL for (uint i = 0; i < kWOwn; ++i)
            machine::copy_start<16>(w + n * Tile::kWBytes + i * kWarpgroup * 16,
                                    w_from + w_offsets[i] + n * (kRowBytes / 4));
      }
      x_from += kTogether * kRowBytes;
      w_from += kTogether * (kRowBytes / 4);
    }
    machine::copies_end();
  }

  // Sums of the rows of x in tiles t and t + 1, as products of ones with 64 rows at a time: the first and the last 64.
  // They are a warpgroup's products, which go on beside the others': a warp's own would wait for these.
  static constant constexpr uint kBlocks = (Tokens + 63) / 64;
  typedef float RowSums[kTogether][kBlocks][4];
  METAL_FUNC void begin_sums(thread RowSums& sums, uint t) const {
    const ulong ones = machine::warpgroup_operand(tile.ones());
    machine::held(sums);
    machine::warpgroup_begin();
    MLXTS_UNROLL for (uint n = 0; n < kTogether; ++n) MLXTS_UNROLL for (uint b = 0; b < kBlocks; ++b) {
      const ulong x = machine::warpgroup_operand(tile.x((t + n) % kStages) + b * (Tokens - 64) * kRowBytes);
      MLXTS_UNROLL for (uint k = 0; k < 4; ++k) machine::warpgroup_bf16_k16(sums[n][b], x + 2 * k, ones, k > 0);
    }
    machine::warpgroup_end();
  }
  // Four lanes have the same sums, of two rows of each 64, eight apart: each lane stores one of them.
  METAL_FUNC void finish_sums(thread RowSums& sums, uint t) const {
    machine::warpgroup_wait<0>();
    machine::held(sums);
    const uint lane = index % 32, block = lane % 4 / 2, second = lane % 2;
    const uint row = block * (Tokens - 64) + index / 32 * 16 + second * 8 + lane / 4;
    if (block > 0 && row < 64) return;  // of both the first and the last 64
    MLXTS_UNROLL for (uint n = 0; n < kTogether; ++n) {
      thread const float *first_block = sums[n][0], *last_block = sums[n][kBlocks - 1];
      const float first = second ? first_block[2] : first_block[0], last = second ? last_block[2] : last_block[0];
      const float sum = block > 0 ? last : first;
      const ThreeParts of_bias(sum), of_scale(-16.0f * sum);
      *(threadgroup uint4*)(tile.sums() + row * kRowBytes + ((t + n) % 8 ^ row % 8) * 16) =
          uint4(of_bias.first_two(), of_bias.last(), of_scale.first_two(), of_scale.last());
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
    for (uint at = index * 16; at < Tile::kXBytes; at += kWarpgroup * 16)
      *(threadgroup uint4*)(tile.sums() + at) = uint4(0, 0, 0, 0);
    if (index < 64) *(threadgroup uint4*)(tile.ones() + index * 16) = uint4(0x3f803f80u);
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
// other is multiplied. A lane has two rows of W, eight apart, and of each eight rows of x two.
template <uint Warpgroups, uint Tokens>
struct TileMultiplier {
  typedef WarpgroupTile<Warpgroups, Tokens> Tile;
  static constant constexpr uint kHalf = Tokens / 2, kBlocks = kHalf / 8;
  // Whether words wait in registers to be decoded: the largest tile has none left for them.
  static constant constexpr bool kWordsAhead = Tokens < 128;

  Tile tile;
  device const uchar *scales, *biases;
  ulong second;  // row's scales are so many bytes further
  threadgroup const uchar* words_from;
  uint tiles, groups, pair;  // tiles of a group
  uint factor;               // which bytes of scales, then biases, meet this lane's columns of sums: one of them, twice
  float total[2][kBlocks][4], products[2][kBlocks][4];
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
    MLXTS_UNROLL for (uint h = 0; h < 2; ++h) MLXTS_UNROLL for (uint b = 0; b < kBlocks; ++b)
        MLXTS_UNROLL for (uint e = 0; e < 4; ++e) total[h][b][e] = products[h][b][e] = 0.0f;
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

  METAL_FUNC void load_words(uint stage) {
    threadgroup const uchar* from = words_from + stage * Tile::kWBytes;
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
    if (!kWordsAhead) machine::settled(codes[set], tile.w(0), groups == 0);
    machine::held(codes[set]);
  }

  METAL_FUNC void multiply(uint half, uint set, uint stage) {
    machine::held(products[half]);
    machine::held(codes[set]);
    machine::warpgroup_begin();
    const ulong x = machine::warpgroup_operand(tile.x(stage) + half * kHalf * kRowBytes);
    MLXTS_UNROLL for (uint k = 0; k < 4; ++k)
        machine::warpgroup_bf16_k16(products[half], codes[set][k], x + 2 * k, k > 0);
    machine::warpgroup_end();
  }
  // Adds what scales and biases make of the sums of x in four tiles, of which `block` is the number.
  METAL_FUNC void multiply_offsets(uint block) {
    machine::held(total);
    machine::held(offsets);
    machine::warpgroup_begin();
    MLXTS_UNROLL for (uint h = 0; h < 2; ++h) {
      const ulong x = machine::warpgroup_operand(tile.sums() + h * kHalf * kRowBytes) + block % 2 * 4;
      MLXTS_UNROLL for (uint k = 0; k < 2; ++k) machine::warpgroup_bf16_k16(total[h], offsets[k], x + 2 * k, true);
    }
    machine::warpgroup_end();
  }
  METAL_FUNC void add_scaled(uint half) {
    machine::held(products[half]);
    MLXTS_UNROLL for (uint b = 0; b < kBlocks; ++b) MLXTS_UNROLL for (uint e = 0; e < 4; ++e)
        total[half][b][e] = metal::fma(scale[e / 2], products[half][b][e], total[half][b][e]);
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
      multiply(0, 0, t % kStages);
      multiply(1, 0, t % kStages);
      MLXTS_UNROLL for (uint i = 0; i < 4; ++i) now[i] = held[i];
      load_scales(t + kUnrolled);
      MLXTS_UNROLL for (uint u = 0; u < kUnrolled; ++u) {
        const uint next = (t + u + 1) % kStages, set = u % 2;
        if (!kWordsAhead) load_words(next);
        decode(1 - set);
        if (u % kTogether == 0) Tile::meet();
        if (kWordsAhead) load_words((next + 1) % kStages);
        machine::warpgroup_wait<1>();
        if (u == 0) {
          machine::held(total);
          machine::held(offsets);
        }
        take_scales(u);
        add_scaled(0);
        if (u + 1 < kUnrolled) {
          multiply(0, 1 - set, next);
          machine::warpgroup_wait<1>();
        } else {
          machine::warpgroup_wait<0>();
        }
        machine::held(codes[set]);
        add_scaled(1);
        if (u + 1 < kUnrolled) multiply(1, 1 - set, next);
      }
    }
    multiply_offsets(tiles / kUnrolled + 1);
    machine::warpgroup_wait<0>();
    machine::held(total);
  }

  // Rounds the totals to rows of out, `stride` elements apart, from row0 of W on; m and `rows` are left.
  template <typename Added>
  METAL_FUNC void store(device bfloat* out, uint stride, uint m, uint rows, uint simdgroup, uint lane,
                        Added added) const {
    const uint row = 16 * simdgroup + lane / 4, at = 16 * simdgroup + lane % 2 * 8;
    const float bias[2] = {row < rows ? added(row) : 0.0f, row + 8 < rows ? added(row + 8) : 0.0f};
    const bool whole = at + 8 <= rows && stride % 8 == 0 && (ulong(out) & 15) == 0;
    // Where the words of these rows of W were: a tile's have room for 16 rows of out.
    threadgroup uchar* room = tile.w(0) + 16 * simdgroup * (kRowBytes / 4);
    threadgroup uchar *const to = room + lane % 8 * 32 + lane / 16 * 256 + (lane / 8 % 2 ^ lane / 4 % 2) * 16,
                      *const from = room + lane / 2 * 32 + (lane % 2 ^ lane / 8 % 2) * 16;
    simdgroup_barrier(metal::mem_flags::mem_threadgroup);
    MLXTS_UNROLL for (uint i = 0; i < Tokens / 16; ++i) {
      uint own[4];
      MLXTS_UNROLL for (uint e = 0; e < 4; ++e) {
        thread const float* sum = total[2 * i / kBlocks][(2 * i + e / 2) % kBlocks] + e % 2 * 2;
        own[e] = machine::bf16_pair(sum[0] + bias[e % 2], sum[1] + bias[e % 2]);
      }
      machine::store_matrices_transposed(to + i % kStages * Tile::kWBytes, own);
    }
    simdgroup_barrier(metal::mem_flags::mem_threadgroup);
    MLXTS_UNROLL for (uint i = 0; i < Tokens / 16; ++i) {
      const uint token = i * 16 + lane / 2;
      const uint4 eight = *(threadgroup const uint4*)(from + i % kStages * Tile::kWBytes);
      if (token >= m) continue;
      device bfloat* to = out + ulong(token) * stride + at;
      if (whole)
        *(device uint4*)to = eight;
      else
        MLXTS_UNROLL for (uint e = 0; e < 8; ++e)
          if (at + e < rows) to[e] = as_type<bfloat>(ushort(eight[e / 2] >> e % 2 * 16));
    }
  }
};

// A threadgroup's products, rounded to rows of `out`, which begins at its first row of W: x begins at its first row, of
// which m are left.
template <uint Warpgroups, uint Tokens, typename Added>
METAL_FUNC void multiply_by_warpgroups(WarpgroupTile<Warpgroups, Tokens> tile, device const bfloat* x,
                                       AffineMatrix<bfloat, 4> w, device bfloat* out, uint m, uint row0, uint index,
                                       uint simdgroup, uint lane, Added added) {
  // With three warpgroups 168 registers for each thread; those that multiply need more.
  if (machine::shuffle(simdgroup, 0) / 4 == Warpgroups) {
    if (Warpgroups == 2) machine::fewer_registers<kFewRegisters>();
    device const uint* words = w.words + ulong(row0) * (w.cols / 8);
    TileBringer<Warpgroups, Tokens>(tile, x, words, w.cols, m, w.rows - row0, index % kWarpgroup).run();
    return;
  }
  if (Warpgroups == 2) machine::more_registers<kManyRegisters>();
  TileMultiplier<Warpgroups, Tokens> multiplier(tile, w, row0, simdgroup, lane);
  multiplier.run();
  multiplier.store(out, w.rows, m, w.rows - row0, simdgroup, lane, added);
}

}  // namespace mlxts
