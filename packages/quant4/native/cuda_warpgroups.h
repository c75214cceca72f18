// Products with many rows of x on GPUs whose warpgroups multiply (compute capability 9.0): W times xᵀ, so that the
// codes, which are decoded in registers, are the left operand, and x, which is copied as it is, the right one. A
// threadgroup has kRows rows of W, 64 to a warpgroup, against kTokens rows of x. One more warpgroup brings tiles of 64
// columns and adds up rows of x, while the others multiply; all meet once in two tiles.
//
// products += scale·Σqx as elsewhere. Σ over groups of offset·Σx is a product, too: of four groups at a time, where an
// f32 is the sum of three bf16, of whose nine products the six that f32 can hold take the columns h·h h·m m·h m·m h·l
// l·h.
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

  // Tiles of x, of which the last is sums of rows of x as right operands, and of W.
  threadgroup uchar *x_tiles, *w_tiles;

  METAL_FUNC threadgroup uchar* x(uint stage) const thread { return x_tiles + stage * kXBytes; }
  METAL_FUNC threadgroup uchar* sums() const thread { return x(kStages); }
  METAL_FUNC threadgroup uchar* w(uint stage) const thread { return w_tiles + stage * kWBytes; }
  // Where all threads meet while tile t is multiplied, the first of two: the two after these are there, the two before
  // them are done, and x has been added up as far as tile t + 1.
  METAL_FUNC static void meet() { machine::parts_meet<kThreads>(); }
};

METAL_FUNC uint high_bits(float x) { return as_type<uint>(x) & 0xffff0000u; }
// An f32 as three bf16, in the high halves of registers.
struct ThreeParts {
  uint high, middle, low;

  METAL_FUNC explicit ThreeParts(float x) : high(high_bits(x)) {
    const float rest = x - as_type<float>(high);
    middle = high_bits(rest);
    low = as_type<uint>(rest - as_type<float>(middle));
  }
  METAL_FUNC static uint pair(uint first, uint second) { return machine::bytes_of(first, second, 0x7632); }
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
  uint tiles, row;  // the row of x that it adds up

  METAL_FUNC TileBringer(Tile tile, device const bfloat* x, device const uint* w, uint cols, uint m, uint rows,
                         uint index)
      : tile(tile), tiles(cols / kColumns), row(index) {
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

  // Adds up a row of x in tile t: not in the matrix unit, where this would wait for the others' products.
  METAL_FUNC void add_row(uint t) const {
    if (row >= Tokens) return;
    threadgroup const uchar* from = tile.x(t % kStages) + row * kRowBytes;
    float sums[8] = {};
    MLXTS_UNROLL for (uint i = 0; i < 2; ++i) {
      uint4 pieces[4];
      MLXTS_UNROLL for (uint n = 0; n < 4; ++n)
          pieces[n] = *(threadgroup const uint4*)(from + ((4 * i + n) ^ row % 8) * 16);
      MLXTS_UNROLL for (uint n = 0; n < 4; ++n) MLXTS_UNROLL for (uint e = 0; e < 4; ++e) {
        sums[2 * e] += as_type<float>(pieces[n][e] << 16);
        sums[2 * e + 1] += as_type<float>(pieces[n][e] & 0xffff0000u);
      }
    }
    MLXTS_UNROLL for (uint step = 4; step > 0; step /= 2) MLXTS_UNROLL for (uint e = 0; e < step; ++e)
        sums[e] += sums[e + step];
    const ThreeParts parts(sums[0]);
    const uint high_middle = ThreeParts::pair(parts.high, parts.middle);
    *(threadgroup uint4*)(tile.sums() + row * kRowBytes + (t % 8 ^ row % 8) * 16) =
        uint4(high_middle, high_middle, ThreeParts::pair(parts.low, parts.high), 0);
  }

  METAL_FUNC void run() {
    MLXTS_UNROLL for (uint t = 0; t + kTogether < kStages; t += kTogether) start(t);
    for (uint at = row * 16; at < Tile::kXBytes; at += kWarpgroup * 16)
      *(threadgroup uint4*)(tile.sums() + at) = uint4(0, 0, 0, 0);
    machine::copies_wait<kStages / kTogether - 2>();
    machine::warpgroup_operands_written();
    Tile::meet();
    for (uint t = 0; t < kTogether; ++t) add_row(t);
    for (uint t = 0; t < tiles; t += kTogether) {
      machine::copies_wait<kStages / kTogether - 3>();
      machine::warpgroup_operands_written();
      Tile::meet();
      // What is on its way must not wait for sums.
      start(t + kStages - kTogether);
      if (t + kTogether < tiles) MLXTS_UNROLL for (uint i = 0; i < kTogether; ++i) add_row(t + kTogether + i);
    }
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
  float total[2][kBlocks][4], products[2][kBlocks][4];
  uint codes[2][4][4], offsets[2][4], words[2][8];
  uint2 held[4], now[4];  // scales of two rows, then biases, of four tiles
  float scale[2];

  METAL_FUNC TileMultiplier(Tile tile, AffineMatrix<bfloat, 4> w, uint row0, uint simdgroup, uint lane)
      : tile(tile), tiles(w.cols / kColumns), groups(w.groupSize / kColumns), pair(lane % 4) {
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
  METAL_FUNC float of_tile(uint2 four, uint u) const {
    const uint two = u < 2 ? four.x : four.y;
    return as_type<float>(u % 2 == 0 ? two << 16 : two & 0xffff0000u);
  }
  // The scales of tile u of four; its offsets become the left operand that meets the sums of x.
  METAL_FUNC void take_scales(uint u) {
    MLXTS_UNROLL for (uint r = 0; r < 2; ++r) {
      scale[r] = of_tile(now[r], u);
      const ThreeParts parts(centered<4>(scale[r], of_tile(now[2 + r], u)));
      const uint first = pair == 1 ? parts.middle : parts.high, other = pair == 2 ? parts.low : first;
      offsets[u / 2][u % 2 * 2 + r] = pair == 3 ? 0 : ThreeParts::pair(first, other);
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
      const uint both = machine::and_or(byte * 0x1001u, 0x000f000fu, 0x43004300u);  // 128 + q, minus 136
      codes[set][k][i] = machine::bf16_fma_pair(both, 0x3f803f80u, 0xc308c308u);
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
  // Adds offset·Σx of the four tiles of which `block` is the number.
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
    const uint row = 16 * simdgroup + lane / 4, to_row = 16 * simdgroup + lane % 4 * 2;
    const float bias[2] = {row < rows ? added(row) : 0.0f, row + 8 < rows ? added(row + 8) : 0.0f};
    const bool pairs = stride % 2 == 0 && (ulong(out) & 3) == 0;
    MLXTS_UNROLL for (uint h = 0; h < 2; ++h) MLXTS_UNROLL for (uint b = 0; b < kBlocks; ++b) {
      const uint token = h * kHalf + b * 8 + lane / 4;
      MLXTS_UNROLL for (uint r = 0; r < 2; ++r) {
        thread const float* sum = total[h][b] + 2 * r;
        const uint two = machine::transposed16(machine::bf16_pair(sum[0] + bias[r], sum[1] + bias[r]));
        const uint at = to_row + 8 * r;
        if (token >= m || at >= rows) continue;
        device bfloat* to = out + ulong(token) * stride + at;
        if (pairs) {
          *(device uint*)to = two;
          continue;
        }
        to[0] = as_type<bfloat>(ushort(two));
        if (at + 1 < rows) to[1] = as_type<bfloat>(ushort(two >> 16));
      }
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
