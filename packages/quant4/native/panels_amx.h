// Panels of codes as bf16x2, in which they are exact, for tiles of rows of x as sums of bf16: a bf16 is one part, an
// f16 two, an f32 three, with nothing lost. All parts of x add to the same sums. Or panels of bytes for x in bytes.
#pragma once
#include "amx_tiles.h"
#include "panels_bf16.h"
#include "panels_limbs.h"

namespace mlxts {

#if defined(__AMX_BF16__)
// Parts of x whose bits are those of bf16, one after the other.
template <int Parts>
MLXTS_INLINE void bf16_parts(vf32 x, vu32 (&parts)[Parts]) {
  for (int i = 0; i < Parts; ++i) {
    parts[i] = reinterpret_cast<vu32>(x) & 0xffff0000u;
    x -= reinterpret_cast<vf32>(parts[i]);
  }
}

// A tile of x, 16 rows of 32 columns; those of a row of tiles follow each other, part after part, panel after panel.
constexpr uint32_t kTileColumns = AmxTiles::kRowBytes / 2;
constexpr size_t kTileElements = AmxTiles::kRows * kTileColumns;
static_assert(AmxTiles::kRows == QUANTIZED_MATMUL_PADDED_ROWS);

MLXTS_INLINE uint32_t padded_rows(uint32_t m) { return uint32_t(round_up(m, AmxTiles::kRows)); }

// Row r of m rows of x in tiles, columns in the order in which panels of codes have them; Σx of each group. Null: a row
// of zeros.
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
    bf16* row = to + (k0 * size_t(padded) + size_t(r / AmxTiles::kRows) * columns * AmxTiles::kRows) * Parts +
                (k - k0) * AmxTiles::kRows * Parts + r % AmxTiles::kRows * kTileColumns;
    if (x) t.x(x + k * t.xBytes, widened, groupSize);
    vf32 sum = {};
    for (uint32_t i = 0; i < groupSize; i += kTileColumns) {
      const vf32 first = load(widened + i), second = load(widened + i + kLanes);
      sum += first + second;
      vu32 low[Parts], high[Parts];
      bf16_parts(first, low);
      bf16_parts(second, high);
      for (int part = 0; part < Parts; ++part, row += kTileElements) {
        const __m256i halves[2] = {_mm512_cvtepi32_epi16(reinterpret_cast<__m512i>(low[part] >> 16)),
                                   _mm512_cvtepi32_epi16(reinterpret_cast<__m512i>(high[part] >> 16))};
        const __m512i both = _mm512_inserti64x4(_mm512_castsi256_si512(halves[0]), halves[1], 1);
        _mm512_store_si512(row, _mm512_permutexvar_epi16(index, both));
      }
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
  return Parts == kInBytes && groupSize > kTileColumns ? 2 * kTileColumns : kTileColumns;
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
                (k0 / each * size_t(padded / AmxTiles::kRows) +
                 size_t(r / AmxTiles::kRows) * (panel_columns(cols, k0) / each) + (k - k0) / each) *
                    kTileElements +
                r % AmxTiles::kRows * kTileColumns;
    if (x) t.x(x + k * t.xBytes, group, groupSize);
    const ByteUnit of = byte_unit(group, groupSize);
    vf32 whole = {};
    for (uint32_t i = 0; i < groupSize; i += kLanes) whole += store_bytes(load(group + i), of, bytes + i);
    for (uint32_t i = 0; i < groupSize; i += each, row += kTileElements)
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

// Tile instructions want their tiles as literals. Tiles 0 … 3 are sums.
template <int Tile>
MLXTS_INLINE void zero_sums() {
  if constexpr (Tile == 0) _tile_zero(0);
  if constexpr (Tile == 1) _tile_zero(1);
  if constexpr (Tile == 2) _tile_zero(2);
  if constexpr (Tile == 3) _tile_zero(3);
}
template <int Tile>
MLXTS_INLINE void store_sums(void* to) {
  if constexpr (Tile == 0) _tile_stored(0, to, AmxTiles::kRowBytes);
  if constexpr (Tile == 1) _tile_stored(1, to, AmxTiles::kRowBytes);
  if constexpr (Tile == 2) _tile_stored(2, to, AmxTiles::kRowBytes);
  if constexpr (Tile == 3) _tile_stored(3, to, AmxTiles::kRowBytes);
}

// Four tiles of sums at a time: 32 rows of x by 32 of W, or 16 by 64.
constexpr int kSumTiles = 4;
template <int RowTiles>
inline constexpr int kColumnTiles = kSumTiles / RowTiles;

// What the groups of a panel give to four tiles, before scales: sums[group][tile][row][column].
struct PanelSums {
  alignas(64) float of[kCodeDepth / 32][kSumTiles][AmxTiles::kRows][kLanes];
};

// Four tiles of products: their sums, and what these are added to once they are known.
struct TileProducts {
  PanelSums* sums;
  const float *scales, *biases;  // of the first group and row of W
  const float *xSums, *xUnits;   // of the first group and row of x; those of a group are `stride` apart
  size_t stride;
  float* c;  // [rows, kBlock]
  uint32_t groups, rowTiles;
};

// c += scale·sum + bias·Σx, row by row; of sums in units, scale·unit·sum.
template <int Parts, int Groups, int RowTiles>
struct AddRows {
  static constexpr int kVectors = kColumnTiles<RowTiles>, kRows = RowTiles * AmxTiles::kRows;
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
    const int tile = row / AmxTiles::kRows * kVectors, r = row % AmxTiles::kRows;
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
      _tile_loadd(4, left, AmxTiles::kRowBytes);
      MLXTS_TILE_DOT(0, 4, 6);
    }
    if constexpr (Tile == 1) {
      _tile_loadd(7, right + kLanes, kStride);
      MLXTS_TILE_DOT(1, 4, 7);
    }
    if constexpr (Tile == 2) {
      _tile_loadd(5, left + tileRow, AmxTiles::kRowBytes);
      MLXTS_TILE_DOT(2, 5, 6);
    }
    if constexpr (Tile == 3) MLXTS_TILE_DOT(3, 5, 7);
  } else {
    if constexpr (Tile == 0) {
      _tile_loadd(4, left, AmxTiles::kRowBytes);
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
__attribute__((noinline)) void multiply_tiles(const bf16* left, size_t tileRow, const bf16x2* right, size_t stepSize,
                                              const TileProducts& now, const TileProducts& last) {
  constexpr int kTiles = kPartTiles<Parts>, kQuads = Groups * Steps * kTiles,
                kAdds = kQuads > 1 ? (kQuads - 1) * kSumTiles : 1;
  if constexpr (Parts != kInBytes) stepSize = kTileColumns / 2 * kBlock;
  const AddRows<Parts, Groups, RowTiles> rows(last);
  const auto quad = [&]<int Quad>(std::integral_constant<int, Quad>) __attribute__((always_inline)) {
    constexpr int kGroup = Quad / kTiles / Steps;
    constexpr bool kFirst = Quad % (kTiles * Steps) == 0;
    const auto tile = [&]<int Tile>(std::integral_constant<int, Tile>) __attribute__((always_inline)) {
      if constexpr (kFirst) {
        if constexpr (Quad == 0) {
          store_sums<Tile>(last.sums->of[Groups - 1][Tile]);
        } else {
          store_sums<Tile>(now.sums->of[kGroup - 1][Tile]);
        }
        zero_sums<Tile>();
      }
      multiply_tile<Parts, Tile, RowTiles>(left + Quad * kTileElements, tileRow, right + Quad / kTiles * stepSize);
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

using MultiplyTiles = void (*)(const bf16*, size_t, const bf16x2*, size_t, const TileProducts&, const TileProducts&);

// For groups of so many tiles.
template <int Parts, int RowTiles>
MultiplyTiles multiply_tiles_of(uint32_t steps, uint32_t groups) {
  if (steps == 4) return multiply_tiles<Parts, 4, 1, RowTiles>;
  if (steps == 2) return groups == 1 ? multiply_tiles<Parts, 2, 1, RowTiles> : multiply_tiles<Parts, 2, 2, RowTiles>;
  if (groups == 1) return multiply_tiles<Parts, 1, 1, RowTiles>;
  if (groups == 2) return multiply_tiles<Parts, 1, 2, RowTiles>;
  return groups == 3 ? multiply_tiles<Parts, 1, 3, RowTiles> : multiply_tiles<Parts, 1, 4, RowTiles>;
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

// Rows of words that a panel will need next: they are fetched while products keep the processor busy.
struct WordsAhead {
  const uint8_t* next = nullptr;
  size_t rowBytes = 0, bytes = 0;  // from row to row, and of each
  uint32_t rows = 0, each = 0;     // left, and at a time

  MLXTS_INLINE void step() {
    for (uint32_t i = 0; i < each && rows > 0; ++i, --rows, next += rowBytes)
      for (size_t at = 0; at < bytes; at += 64) __builtin_prefetch(next + at, 0, 2);
  }
};

// c[m, kBlock] += x · Wᵀ for `count` blocks of W, whose products follow each other. `next`, where there is one, is
// what comes then. All blocks meet a panel of x while that is in cache.
template <int Bits, int Parts, typename Scratch>
void multiply_parts(const bf16* x, uint32_t m, uint32_t cols, const Block* w, uint32_t count, const Block* next,
                    const Scratch& s) {
  bf16x2* panel = reinterpret_cast<bf16x2*>(s.panel);
  const AmxTiles tiles;
  PanelSums sums[2] = {};
  alignas(64) float nowhere[2 * AmxTiles::kRows * kBlock] = {};
  TileProducts last{};
  bool pending = false;
  const uint32_t padded = padded_rows(m), each = step_columns<Parts>(w->groupSize), steps = w->groupSize / each;
  const size_t paddedTiles = padded / AmxTiles::kRows, stepSize = each / 4 * kBlock;
  uint32_t turn = 0;
  const auto finish = [&] {
    if (pending) last.rowTiles == 2 ? add_last<Parts, 2>(last) : add_last<Parts, 1>(last);
    pending = false;
  };
  for (uint32_t k0 = 0; k0 < cols; k0 += kCodeDepth) {
    const uint32_t n = panel_columns(cols, k0), groups = n / w->groupSize, g0 = k0 / w->groupSize;
    const size_t tileRow = size_t(n / each) * kPartTiles<Parts> * kTileElements;  // elements of a row of tiles
    const bf16* before = x + k0 / each * kPartTiles<Parts> * paddedTiles * kTileElements;
    const MultiplyTiles two = multiply_tiles_of<Parts, 2>(steps, groups),
                        one = multiply_tiles_of<Parts, 1>(steps, groups);
    for (uint32_t b = 0; b < count; ++b) {
      decode_tile_panel<Bits, Parts>(w[b], k0, n, panel);
      AmxTiles::written();
      const bool more = b + 1 < count || k0 + n < cols;
      const Block* after = b + 1 < count ? w + b + 1 : more ? w : next;
      WordsAhead ahead;
      if (after) {
        const uint32_t at = b + 1 < count ? k0 : more ? k0 + n : 0;
        ahead = {after->words + size_t(at) * Bits / 8, after->rowBytes, size_t(kCodeDepth) * Bits / 8, after->count,
                 kBlock / (row_tiles(padded, 32) * 2) + 1};
      }
      for (uint32_t r = 0; r < padded; r += 2 * AmxTiles::kRows) {
        const uint32_t rowTiles = r + AmxTiles::kRows < padded ? 2 : 1, columns = kSumTiles / rowTiles * kLanes;
        const bf16* left = before + r / AmxTiles::kRows * tileRow;
        for (uint32_t column = 0; column < w[b].count; column += columns, turn ^= 1) {
          ahead.step();
          if (last.groups != groups || last.rowTiles != rowTiles) finish();
          const size_t first = size_t(g0) * kBlock + column;
          const float* xSums = s.sums + size_t(g0) * padded + r;
          const TileProducts now{&sums[turn],
                                 w[b].scales + first,
                                 w[b].biases + first,
                                 xSums,
                                 xSums + size_t(padded) * (cols / w[b].groupSize),
                                 padded,
                                 s.products + (size_t(b) * padded + r) * kBlock + column,
                                 groups,
                                 rowTiles};
          if (!pending) {
            last = now;
            last.sums = &sums[turn ^ 1];
            last.c = nowhere;
          }
          (rowTiles == 2 ? two : one)(left, tileRow, panel + column, stepSize, now, last);
          last = now;
          pending = true;
        }
      }
    }
  }
  finish();
}
#endif

}  // namespace mlxts
