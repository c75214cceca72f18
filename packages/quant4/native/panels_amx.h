// Panels of codes as bf16x2, in which they are exact, for tiles of rows of x as sums of bf16: a bf16 is one part, an
// f16 two, an f32 three, with nothing lost. All parts of x add to the same sums. Or panels of bytes for x in bytes.
#pragma once
#include "amx_product.h"
#include "panels_limbs.h"

namespace mlxts {

#if defined(__AMX_BF16__)
static_assert(kAmxRows == QUANTIZED_MATMUL_PADDED_ROWS);

MLXTS_INLINE uint32_t padded_rows(uint32_t m) { return uint32_t(round_up(m, kAmxRows)); }

// Columns k0 … k0 + n − 1 of the codes, a panel of bf16x2: [n / 2][kBlock]. The two columns are half a word apart.
template <int Bits>
void decode_bf16_panel(const Block& w, uint32_t k0, uint32_t n, bf16x2* panel) {
  constexpr int kSteps = kPerWord<Bits> / 2;
  alignas(64) uint16_t entries[32];
  for (int i = 0; i < 32; ++i) entries[i] = from_f32<bf16>(float(i % 16 - 8)).bits;
  const __m512i table = _mm512_load_si512(entries);
  for (uint32_t v = 0; v < kBlock / kLanes; ++v) {
    bf16x2* to = panel + v * kLanes;
    for (uint32_t k = 0; k < n; k += kChunk<Bits>) {
      const uint32_t count = (n - k < uint32_t(kChunk<Bits>) ? n - k : kChunk<Bits>) / kPerWord<Bits>;
      vu32 words[kLanes];
      w.load_transposed(v, (k0 + k) / kPerWord<Bits>, count, words);
      for (uint32_t i = 0; i < count; ++i, to += kSteps * kBlock) {
#pragma GCC unroll 4
        for (int j = 0; j < kSteps; ++j) {
          vu32 codes;
          if constexpr (Bits == 4) {
            const __m512i shifted = _mm512_srli_epi16(reinterpret_cast<__m512i>(words[i]), uint32_t(4 * j));
            codes = reinterpret_cast<vu32>(_mm512_permutexvar_epi16(shifted, table));
          } else {
            const vi32 flipped = reinterpret_cast<vi32>(words[i] ^ 0x80808080u);
            const vf32 first = __builtin_convertvector((flipped << (24 - 8 * j)) >> 24, vf32);
            const vf32 second = __builtin_convertvector((flipped << (8 - 8 * j)) >> 24, vf32);
            // Whole numbers up to 128 have no more bits than bf16.
            codes = (reinterpret_cast<vu32>(first) >> 16) | (reinterpret_cast<vu32>(second) & 0xffff0000u);
          }
          store_bf16x2(to + j * kBlock, codes);
        }
      }
    }
  }
}

// The column of 32 that is i-th where pairs of columns half a word apart are neighbors.
template <int Bits>
void code_order(uint16_t (&order)[32]) {
  constexpr int per = kPerWord<Bits>;
  for (int i = 0; i < 32; ++i) order[i] = uint16_t(i / per * per + i % per / 2 + (i % 2) * per / 2);
}

// Row r of m rows of x in tiles of 16 rows, which lie panel by panel, row of tiles by row of tiles, step by step, part
// by part; columns in the order in which panels of codes have them; Σx of each group. Null: a row of zeros.
template <int Bits, int Parts>
void order_parts(const Types& t, const uint8_t* x, uint32_t cols, uint32_t groupSize, uint32_t m, uint32_t r, bf16* to,
                 float* sums) {
  alignas(64) uint16_t order[32];
  code_order<Bits>(order);
  const __m512i index = _mm512_load_si512(order);
  alignas(64) float widened[128] = {};
  const uint32_t padded = padded_rows(m);
  for (uint32_t k = 0; k < cols; k += groupSize) {
    const uint32_t k0 = k / kCodeDepth * kCodeDepth, columns = panel_columns(cols, k0);
    bf16* row = to + (k0 * size_t(padded) + size_t(r / kAmxRows) * columns * kAmxRows) * Parts +
                (k - k0) * kAmxRows * Parts + r % kAmxRows * kTileDepth;
    if (x) t.x(x + k * t.xBytes, widened, groupSize);
    vf32 sum = {};
    for (uint32_t i = 0; i < groupSize; i += kTileDepth) {
      const vf32 first = load(widened + i), second = load(widened + i + kLanes);
      sum += first + second;
      vu32 parts[Parts];
      split_parts(first, second, parts);
      for (int part = 0; part < Parts; ++part, row += kTileSize)
        _mm512_store_si512(row, _mm512_permutexvar_epi16(index, reinterpret_cast<__m512i>(parts[part])));
    }
    sums[size_t(k / groupSize) * padded + r] = reduce_add(sum);
  }
}

// In place of a number of parts: x is in bytes, and its tiles meet panels of centered codes as signed bytes. Sums are
// whole numbers then, in units of each row of x.
constexpr int kInBytes = 0;
// Tiles of a step along the columns.
template <int Parts>
inline constexpr int kPartTiles = Parts == kInBytes ? 1 : Parts;
// Columns that a tile has of a group; of groups of 32 in bytes, zeros follow.
template <int Parts>
MLXTS_INLINE uint32_t step_columns(uint32_t groupSize) {
  return uint32_t(Parts == kInBytes && groupSize > kTileDepth ? 2 * kTileDepth : kTileDepth);
}

// As order_parts; the units of groups are where Σx would be of another matrix with as many groups.
template <int Bits>
void order_byte_tiles(const Types& t, const uint8_t* x, uint32_t cols, uint32_t groupSize, uint32_t m, uint32_t r,
                      bf16* to, float* sums) {
  const __m512i index = byte_order<Bits>();
  const uint32_t padded = padded_rows(m), each = step_columns<kInBytes>(groupSize);
  float* units = sums + size_t(padded) * (cols / groupSize);
  alignas(64) float group[128] = {};
  alignas(64) int8_t bytes[128];
  for (uint32_t k = 0, g = r; k < cols; k += groupSize, g += padded) {
    const uint32_t k0 = k / kCodeDepth * kCodeDepth;
    bf16* row = to +
                (k0 / each * size_t(padded / kAmxRows) + size_t(r / kAmxRows) * (panel_columns(cols, k0) / each) +
                 (k - k0) / each) *
                    kTileSize +
                r % kAmxRows * kTileDepth;
    if (x) t.x(x + k * t.xBytes, group, groupSize);
    const ByteUnit of = byte_unit(group, groupSize);
    vf32 whole = {};
    for (uint32_t i = 0; i < groupSize; i += kLanes) whole += store_bytes(load(group + i), of, bytes + i);
    for (uint32_t i = 0; i < groupSize; i += each, row += kTileSize)
      _mm512_store_si512(
          row, _mm512_maskz_permutexvar_epi8(~__mmask64(0) >> (64 - each), index, _mm512_load_si512(bytes + i)));
    sums[g] = reduce_add(whole) * of.unit;
    units[g] = of.unit;
  }
}

// Columns k0 … k0 + n − 1 of the codes as tiles meet them.
template <int Bits, int Parts>
void decode_tile_panel(const Block& w, uint32_t k0, uint32_t n, bf16x2* panel) {
  if constexpr (Parts != kInBytes) return decode_bf16_panel<Bits>(w, k0, n, panel);
  uint32_t* bytes = reinterpret_cast<uint32_t*>(panel);
  decode_byte_panel<Bits>(w, k0, n, bytes);
  const __m512i center = _mm512_set1_epi8(Bits == 4 ? 8 : char(-128));
  for (uint32_t i = 0; i < n / 4 * kBlock; i += kLanes)
    _mm512_storeu_si512(bytes + i, _mm512_sub_epi8(_mm512_loadu_si512(bytes + i), center));
}

// Four tiles of sums at a time: 32 rows of x by 32 of W, or 16 by 64.
constexpr int kSumTiles = 4;
template <int RowTiles>
inline constexpr int kColumnTiles = kSumTiles / RowTiles;

// What the groups of a panel give to four tiles, before scales: sums[group][tile][row][column].
struct PanelSums {
  alignas(64) float of[kCodeDepth / 32][kSumTiles][kAmxRows][kLanes];
};

// Four tiles of products: their sums, and what these are added to once they are known.
struct TileProducts {
  PanelSums* sums;
  const float *scales, *biases;  // of the first group and row of W
  const float *xSums, *xUnits;   // of the first group and row of x; those of a group are `stride` apart
  size_t stride;
  float* c;  // [rows, kBlock]
  uint32_t groups;
};

// c += scale·sum + bias·Σx, row by row; of sums in units, scale·unit·sum.
template <int Parts, int Groups, int RowTiles>
struct AddRows {
  static constexpr int kVectors = kColumnTiles<RowTiles>, kRows = RowTiles * kAmxRows;
  const TileProducts of;
  vf32 scale[Groups][kVectors], bias[Groups][kVectors];

  MLXTS_INLINE explicit AddRows(const TileProducts& products) : of(products) {
    MLXTS_UNROLL
    for (int g = 0; g < Groups; ++g) {
      MLXTS_UNROLL
      for (int v = 0; v < kVectors; ++v) {
        scale[g][v] = load(of.scales + g * kBlock + v * kLanes);
        bias[g][v] = load(of.biases + g * kBlock + v * kLanes);
      }
    }
  }
  MLXTS_INLINE void add(int row) const {
    float* to = of.c + size_t(row) * kBlock;
    const int tile = row / kAmxRows * kVectors, r = row % kAmxRows;
    vf32 x[Groups];
    MLXTS_UNROLL
    for (int g = 0; g < Groups; ++g) x[g] = splat(of.xSums[g * of.stride + row]);
    MLXTS_UNROLL
    for (int v = 0; v < kVectors; ++v) {
      vf32 sum = load(to + v * kLanes);
      MLXTS_UNROLL
      for (int g = 0; g < Groups; ++g) {
        vf32 dot = load(of.sums->of[g][tile + v][r]);
        if constexpr (Parts == kInBytes)
          dot = __builtin_convertvector(as_i32(dot), vf32) * splat(of.xUnits[g * of.stride + row]);
        sum = fma(dot, scale[g][v], fma(x[g], bias[g][v], sum));
      }
      store(to + v * kLanes, sum);
    }
  }
  // Of `parts` equal parts, the part `part`.
  MLXTS_INLINE void add(int part, int parts) const {
    for (int row = kRows * part / parts; row < kRows * (part + 1) / parts; ++row) add(row);
  }
};

#define MLXTS_TILE_DOT(sum, a, b)      \
  do {                                 \
    if constexpr (Parts == kInBytes) { \
      _tile_dpbssd(sum, a, b);         \
    } else {                           \
      _tile_dpbf16ps(sum, a, b);       \
    }                                  \
  } while (false)
template <int Parts, int Tile, int RowTiles>
MLXTS_INLINE void multiply_tile(const bf16* left, size_t tileRow, const bf16x2* right) {
  constexpr size_t kStride = kBlock * sizeof(bf16x2);
  if constexpr (RowTiles == 2) {
    if constexpr (Tile == 0) {
      _tile_loadd(6, right, kStride);
      _tile_loadd(4, left, kAmxRowBytes);
      MLXTS_TILE_DOT(0, 4, 6);
    }
    if constexpr (Tile == 1) {
      _tile_loadd(7, right + kLanes, kStride);
      MLXTS_TILE_DOT(1, 4, 7);
    }
    if constexpr (Tile == 2) {
      _tile_loadd(5, left + tileRow, kAmxRowBytes);
      MLXTS_TILE_DOT(2, 5, 6);
    }
    if constexpr (Tile == 3) MLXTS_TILE_DOT(3, 5, 7);
  } else {
    if constexpr (Tile == 0) {
      _tile_loadd(4, left, kAmxRowBytes);
      _tile_loadd(5, right, kStride);
      MLXTS_TILE_DOT(0, 4, 5);
    }
    if constexpr (Tile == 1) {
      _tile_loadd(6, right + kLanes, kStride);
      MLXTS_TILE_DOT(1, 4, 6);
    }
    if constexpr (Tile == 2) {
      _tile_loadd(7, right + 2 * kLanes, kStride);
      MLXTS_TILE_DOT(2, 4, 7);
    }
    if constexpr (Tile == 3) {
      _tile_loadd(5, right + 3 * kLanes, kStride);
      MLXTS_TILE_DOT(3, 4, 5);
    }
  }
}
#undef MLXTS_TILE_DOT

// The sums of four tiles over the groups of a panel. A tile is stored just before it is needed again, those of the last
// group by the call for the next four tiles, and `last` is added between the products: so the tiles never wait. A step
// is stepSize elements of a panel of bytes.
template <int Parts, int Steps, int Groups, int RowTiles>
__attribute__((noinline)) void multiply_groups(const bf16* left, size_t tileRow, const bf16x2* right, size_t stepSize,
                                               const TileProducts& now, const TileProducts& last, TileFetch& fetch) {
  constexpr int kTiles = kPartTiles<Parts>, kQuads = Groups * Steps * kTiles,
                kAdds = kQuads > 1 ? (kQuads - 1) * kSumTiles : 1;
  if constexpr (Parts != kInBytes) stepSize = kTileDepth / 2 * kBlock;
  const AddRows<Parts, Groups, RowTiles> rows(last);
  const auto quad = [&]<int Quad>(std::integral_constant<int, Quad>) __attribute__((always_inline)) {
    constexpr int kGroup = Quad / kTiles / Steps;
    constexpr bool kFirst = Quad % (kTiles * Steps) == 0;
    fetch.step();
    const auto tile = [&]<int Tile>(std::integral_constant<int, Tile>) __attribute__((always_inline)) {
      if constexpr (kFirst) {
        if constexpr (Quad == 0) {
          store_sums<Tile>(last.sums->of[Groups - 1][Tile]);
        } else {
          store_sums<Tile>(now.sums->of[kGroup - 1][Tile]);
        }
        zero_sums<Tile>();
      }
      multiply_tile<Parts, Tile, RowTiles>(left + Quad * kTileSize, tileRow, right + Quad / kTiles * stepSize);
      if constexpr (Quad > 0) rows.add((Quad - 1) * kSumTiles + Tile, kAdds);
    };
    [&]<int... Tile>(std::integer_sequence<int, Tile...>) __attribute__((always_inline)) {
      (tile(std::integral_constant<int, Tile>()), ...);
    }(std::make_integer_sequence<int, kSumTiles>());
  };
  [&]<int... Quad>(std::integer_sequence<int, Quad...>) __attribute__((always_inline)) {
    (quad(std::integral_constant<int, Quad>()), ...);
  }(std::make_integer_sequence<int, kQuads>());
  if constexpr (kQuads == 1) rows.add(0, 1);
}

using MultiplyGroups = void (*)(const bf16*, size_t, const bf16x2*, size_t, const TileProducts&, const TileProducts&,
                                TileFetch&);

// For groups of so many tiles.
template <int Parts, int RowTiles>
MultiplyGroups multiply_groups_of(uint32_t steps, uint32_t groups) {
  if (steps == 4) return multiply_groups<Parts, 4, 1, RowTiles>;
  if (steps == 2) return groups == 1 ? multiply_groups<Parts, 2, 1, RowTiles> : multiply_groups<Parts, 2, 2, RowTiles>;
  if (groups == 1) return multiply_groups<Parts, 1, 1, RowTiles>;
  if (groups == 2) return multiply_groups<Parts, 1, 2, RowTiles>;
  return groups == 3 ? multiply_groups<Parts, 1, 3, RowTiles> : multiply_groups<Parts, 1, 4, RowTiles>;
}

// Adds what no call has added yet.
template <int Parts, int RowTiles>
void add_last(const TileProducts& last) {
  void* to = last.sums->of[last.groups - 1];
  store_sums<0>(to);
  store_sums<1>(static_cast<char*>(to) + 1024);
  store_sums<2>(static_cast<char*>(to) + 2048);
  store_sums<3>(static_cast<char*>(to) + 3072);
  if (last.groups == 1) return AddRows<Parts, 1, RowTiles>(last).add(0, 1);
  if (last.groups == 2) return AddRows<Parts, 2, RowTiles>(last).add(0, 1);
  if (last.groups == 3) return AddRows<Parts, 3, RowTiles>(last).add(0, 1);
  AddRows<Parts, 4, RowTiles>(last).add(0, 1);
}

// Bytes of x in tiles up to which these stay in the second cache.
constexpr size_t kKeptBytes = size_t(1) << 20;

// c[m, kBlock] += x · Wᵀ for `count` blocks of W, whose products follow each other. `next`, where there is one, is
// what comes then. All blocks meet a panel of x while that is in cache.
template <int Bits, int Parts, typename Scratch>
void multiply_parts(const bf16* x, uint32_t m, uint32_t cols, const Block* w, uint32_t count, const Block* next,
                    const Scratch& s) {
  bf16x2* panel = reinterpret_cast<bf16x2*>(s.panel);
  const AmxTiles tiles;
  PanelSums sums[2] = {};
  alignas(64) float nowhere[2 * kAmxRows * kBlock] = {};
  // Taken in turns. Copies would be read before what they are made of is in the cache.
  TileProducts products[2] = {};
  uint32_t lastGroups = 0, lastTiles = 0;  // 0: nothing is pending
  const uint32_t padded = padded_rows(m), each = step_columns<Parts>(w->groupSize), steps = w->groupSize / each;
  const size_t paddedTiles = padded / kAmxRows, stepSize = each / 4 * kBlock;
  const bool fetchRows = size_t(padded) * cols / each * kPartTiles<Parts> * kAmxRowBytes > kKeptBytes;
  uint32_t turn = 0;
  const auto finish = [&] {
    const TileProducts& last = products[turn ^ 1];
    if (lastGroups > 0) lastTiles == 2 ? add_last<Parts, 2>(last) : add_last<Parts, 1>(last);
    lastGroups = 0;
  };
  for (uint32_t k0 = 0; k0 < cols; k0 += kCodeDepth) {
    const uint32_t n = panel_columns(cols, k0), groups = n / w->groupSize, g0 = k0 / w->groupSize;
    const size_t tileRow = size_t(n / each) * kPartTiles<Parts> * kTileSize;  // elements of a row of tiles
    const bf16* before = x + k0 / each * kPartTiles<Parts> * paddedTiles * kTileSize;
    const MultiplyGroups two = multiply_groups_of<Parts, 2>(steps, groups),
                         one = multiply_groups_of<Parts, 1>(steps, groups);
    for (uint32_t b = 0; b < count; ++b) {
      decode_tile_panel<Bits, Parts>(w[b], k0, n, panel);
      AmxTiles::written();
      const bool more = b + 1 < count || k0 + n < cols;
      const Block* after = b + 1 < count ? w + b + 1 : more ? w : next;
      TileFetch fetch;
      if (after) {
        const uint32_t at = b + 1 < count ? k0 : more ? k0 + n : 0;
        fetch.left = {reinterpret_cast<const char*>(after->words) + size_t(at) * Bits / 8, after->rowBytes,
                      after->count, size_t(panel_columns(cols, at)) * Bits / 8};
      }
      if (fetchRows) {
        const size_t size = tileRow * paddedTiles, part = round_up(size * sizeof(bf16) / count, 64);
        const bf16* then = k0 + n < cols ? before + size : x;
        fetch.right = {reinterpret_cast<const char*>(then) + b * part, 0, 1, part};
      }
      fetch.spread(paddedTiles * groups * steps * kPartTiles<Parts>);
      for (uint32_t r = 0; r < padded; r += 2 * kAmxRows) {
        const uint32_t rowTiles = r + kAmxRows < padded ? 2 : 1, columns = kSumTiles / rowTiles * kLanes;
        const bf16* left = before + r / kAmxRows * tileRow;
        for (uint32_t column = 0; column < w[b].count; column += columns, turn ^= 1) {
          if (lastGroups != groups || lastTiles != rowTiles) finish();
          const size_t first = size_t(g0) * kBlock + column;
          const float* xSums = s.sums + size_t(g0) * padded + r;
          TileProducts &now = products[turn], &last = products[turn ^ 1];
          now = {&sums[turn],
                 w[b].scales + first,
                 w[b].biases + first,
                 xSums,
                 xSums + size_t(padded) * (cols / w[b].groupSize),
                 padded,
                 s.products + (size_t(b) * padded + r) * kBlock + column,
                 groups};
          if (lastGroups == 0) {
            last = now;
            last.sums = &sums[turn ^ 1];
            last.c = nowhere;
          }
          (rowTiles == 2 ? two : one)(left, tileRow, panel + column, stepSize, now, last, fetch);
          lastGroups = groups, lastTiles = rowTiles;
        }
      }
    }
  }
  finish();
}
#endif

}  // namespace mlxts
