// Products of matrices by AMX: sums = left · rightᵀ, both bf16 with rows along the contracted dimension k. A left tile
// has 16 rows of 32 elements as they lie; a right tile has 16 rows, too, but transposed: [k / 2][row] of bf16x2.
// Numbers of more digits are sums of several bf16, their parts.
#pragma once
#include "amx_tiles.h"
#if defined(__AMX_BF16__)
#include "matrix_dot.h"
#include "matrix_transpose.h"

namespace mlxts {

inline constexpr int kAmxRows = AmxTiles::kRows;
inline constexpr size_t kAmxRowBytes = AmxTiles::kRowBytes, kTileDepth = kAmxRowBytes / sizeof(bf16);
inline constexpr size_t kTileSize = kAmxRows * kTileDepth;  // elements
inline constexpr size_t kSumsSize = kAmxRows * kAmxRows;    // of a tile of sums

// How many bf16 hold any number of T.
template <typename T>
inline constexpr int kPartsOf = std::is_same_v<T, bf16>  ? 1
                                : std::is_same_v<T, f16> ? 2
                                                         : 3;
// Whether the product of two parts is added: others are below 2^-22 of the whole.
constexpr bool counts(int left, int right) { return left + right < 3; }

// 32 elements of a row, in the order in which they lie, as Parts vectors of bf16 whose sum they are.
template <typename T>
struct TileRow {
  vu32 parts[kPartsOf<T>];
};

// The parts of 32 numbers: each has the leading 8 bits of what those before it leave. An infinite number has no rest.
template <int Parts>
MLXTS_INLINE void split_parts(vf32 low, vf32 high, vu32 (&parts)[Parts]) {
  MLXTS_UNROLL
  for (int i = 0; i < Parts; ++i) {
    const vu32 a = reinterpret_cast<vu32>(low) & 0xffff0000u, b = reinterpret_cast<vu32>(high) & 0xffff0000u;
    const __m512i odd = _mm512_set_epi16(63, 61, 59, 57, 55, 53, 51, 49, 47, 45, 43, 41, 39, 37, 35, 33, 31, 29, 27, 25,
                                         23, 21, 19, 17, 15, 13, 11, 9, 7, 5, 3, 1);
    parts[i] = reinterpret_cast<vu32>(
        _mm512_permutex2var_epi16(reinterpret_cast<__m512i>(a), odd, reinterpret_cast<__m512i>(b)));
    const vf32 x = reinterpret_cast<vf32>(a), y = reinterpret_cast<vf32>(b);
    low = low == x ? vf32{} : low - x;
    high = high == y ? vf32{} : high - y;
  }
}

// The largest of numbers, as bits without sign; what matters is whether parts are right to the last digit.
struct Largest {
  vu32 bits = {};

  MLXTS_INLINE void add(vf32 v) {
    const vu32 x = reinterpret_cast<vu32>(v) & 0x7fffffffu;
    bits = x > bits ? x : bits;
  }
  // Whether all are finite, and so large or all 0 that no part of the largest is lost: products take subnormal bf16 for
  // 0.
  bool fits() const {
    uint32_t most = 0;
    for (int i = 0; i < kLanes; ++i) most = bits[i] > most ? bits[i] : most;
    return most == 0 || (most < 0x7f800000 && most >= (127 - 90) << 23);
  }
};

// `count` ≤ 32 elements of a row, zeros behind them. Where numbers meet parts, all must be `Checked`.
template <bool Checked, typename T>
MLXTS_INLINE TileRow<T> load_tile_row(const T* from, size_t count, Largest& largest) {
  TileRow<T> row;
  if constexpr (std::is_same_v<T, bf16>) {
    row.parts[0] = count >= kTileDepth ? load_bf16x2(from) : load_bf16x2_partial(from, int(count));
    if constexpr (Checked) {
      largest.add(widen_first(row.parts[0]));
      largest.add(widen_second(row.parts[0]));
    }
  } else {
    const auto part = [&](size_t begin) {
      return count >= begin + kLanes ? load(from + begin)
             : count > begin         ? load_partial(from + begin, int(count - begin))
                                     : vf32{};
    };
    const vf32 low = part(0), high = part(kLanes);
    largest.add(low);
    largest.add(high);
    split_parts(low, high, row.parts);
  }
  return row;
}

// Packs 16 rows of `depth` elements, row r from at(r) on, those from `rows` on zeros, into tiles [⌈depth / 32⌉][part].
template <bool Checked, typename At>
void pack_right(At at, int rows, size_t depth, bf16* to, Largest (&largest)[kAmxRows]) {
  using T = std::remove_const_t<std::remove_pointer_t<decltype(at(0))>>;
  for (size_t k = 0; k < depth; k += kTileDepth) {
    vu32 block[kPartsOf<T>][kAmxRows];
    for (int r = 0; r < kAmxRows; ++r) {
      TileRow<T> row = {};
      if (r < rows) row = load_tile_row<Checked>(at(r) + k, depth - k, largest[r]);
      for (int i = 0; i < kPartsOf<T>; ++i) block[i][r] = row.parts[i];
    }
    for (int i = 0; i < kPartsOf<T>; ++i, to += kTileSize) {
      transpose(block[i]);
      for (int r = 0; r < kAmxRows; ++r) memcpy(to + r * kTileDepth, &block[i][r], sizeof block[i][r]);
    }
  }
}

// Rows of bytes to come, fetched into the processor's own cache line by line.
struct FetchRows {
  const char* row = nullptr;
  size_t stride = 0, rows = 0, bytes = 0;  // of a row; rows that are left
  size_t at = 0;                           // in the row

  size_t lines() const { return rows * ((bytes + 63) / 64); }
  MLXTS_INLINE void step() {
    if (rows == 0) return;
    __builtin_prefetch(row + at, 0, 2);
    at += 64;
    if (at >= bytes) at = 0, row += stride, --rows;
  }
};
// What products fetch while the processor is busy with them: so many lines of each in every step along k. All at once
// they would keep the operands waiting.
struct TileFetch {
  FetchRows left, right;
  size_t leftLines = 0, rightLines = 0;

  // All in `steps` steps.
  void spread(size_t steps) {
    leftLines = (left.lines() + steps - 1) / steps;
    rightLines = (right.lines() + steps - 1) / steps;
  }
  MLXTS_INLINE void step() {
    for (size_t i = 0; i < leftLines; ++i) left.step();
    for (size_t i = 0; i < rightLines; ++i) right.step();
  }
};

// Tile instructions want their tiles as literals. Tiles 0 … 3 are sums.
template <int Tile>
MLXTS_INLINE void zero_sums() {
  if constexpr (Tile == 0) _tile_zero(0);
  if constexpr (Tile == 1) _tile_zero(1);
  if constexpr (Tile == 2) _tile_zero(2);
  if constexpr (Tile == 3) _tile_zero(3);
}
template <int Tile>
MLXTS_INLINE void load_sums(const void* from) {
  if constexpr (Tile == 0) _tile_loadd(0, from, kAmxRowBytes);
  if constexpr (Tile == 1) _tile_loadd(1, from, kAmxRowBytes);
  if constexpr (Tile == 2) _tile_loadd(2, from, kAmxRowBytes);
  if constexpr (Tile == 3) _tile_loadd(3, from, kAmxRowBytes);
}
template <int Tile>
MLXTS_INLINE void store_sums(void* to) {
  if constexpr (Tile == 0) _tile_stored(0, to, kAmxRowBytes);
  if constexpr (Tile == 1) _tile_stored(1, to, kAmxRowBytes);
  if constexpr (Tile == 2) _tile_stored(2, to, kAmxRowBytes);
  if constexpr (Tile == 3) _tile_stored(3, to, kAmxRowBytes);
}

// Where operands of multiply_tiles lie, in elements. Left tile (i, s, p) of 16 rows i, step s along k and part p is at
// left + i · leftNext + (s · LeftParts + p) · leftStep, its rows `leftStride` apart: tiles of their own, or rows of a
// matrix. Right tile (j, s, p) is at right + j · rightNext + (s · RightParts + p) · kTileSize. The tile (i, j) of the
// sums, [left row][right row], is at sums + i · sumsLeft + j · sumsRight, its rows `sumsStride` apart.
struct TileOperands {
  const bf16* left;
  size_t leftNext, leftStep, leftStride;
  const bf16* right;
  size_t rightNext;
  size_t steps;
  float* sums;
  size_t sumsLeft, sumsRight, sumsStride;
  bool more;  // sums are added to
};

// sums (+)= left · rightᵀ of L blocks of 16 left rows and R blocks of 16 right rows. Left tiles are to stay in the
// nearest cache; right ones pass it by. The numbers of tiles are literals: sums are 0 … 3, left ones 4 and 5, right
// ones 6 and 7.
template <int L, int R, int LeftParts, int RightParts>
__attribute__((noinline)) void multiply_tiles(const TileOperands& o, TileFetch& fetch) {
  float *const sum0 = o.sums, *const sum1 = sum0 + o.sumsRight, *const sum2 = sum0 + o.sumsLeft,
               *const sum3 = sum2 + o.sumsRight;
  const size_t stride = o.sumsStride * sizeof(float), steps = o.steps, leftNext = o.leftNext, rightNext = o.rightNext;
  const size_t leftStep = o.leftStep, leftStride = o.leftStride * sizeof(bf16);
  const bf16 *a = o.left, *b = o.right;
  AmxTiles::written();
  if (o.more) {
    _tile_loadd(0, sum0, stride);
    if constexpr (R == 2) _tile_loadd(1, sum1, stride);
    if constexpr (L == 2) _tile_loadd(2, sum2, stride);
    if constexpr (L == 2 && R == 2) _tile_loadd(3, sum3, stride);
  } else {
    _tile_zero(0);
    if constexpr (R == 2) _tile_zero(1);
    if constexpr (L == 2) _tile_zero(2);
    if constexpr (L == 2 && R == 2) _tile_zero(3);
  }
  for (size_t s = 0; s < steps; ++s, a += LeftParts * leftStep, b += RightParts * kTileSize) {
    fetch.step();
    MLXTS_UNROLL
    for (int p = 0; p < LeftParts; ++p) {
      _tile_loadd(4, a + p * leftStep, leftStride);
      if constexpr (L == 2) _tile_loadd(5, a + leftNext + p * leftStep, leftStride);
      MLXTS_UNROLL
      for (int q = 0; q < RightParts; ++q) {
        if (!counts(p, q)) continue;
        _tile_loadd(6, b + q * kTileSize, kAmxRowBytes);
        _tile_dpbf16ps(0, 4, 6);
        if constexpr (L == 2) _tile_dpbf16ps(2, 5, 6);
        if constexpr (R == 2) {
          _tile_loadd(7, b + rightNext + q * kTileSize, kAmxRowBytes);
          _tile_dpbf16ps(1, 4, 7);
          if constexpr (L == 2) _tile_dpbf16ps(3, 5, 7);
        }
      }
    }
  }
  _tile_stored(0, sum0, stride);
  if constexpr (R == 2) _tile_stored(1, sum1, stride);
  if constexpr (L == 2) _tile_stored(2, sum2, stride);
  if constexpr (L == 2 && R == 2) _tile_stored(3, sum3, stride);
}

// The same for `left` and `right` blocks, 1 or 2.
template <int LeftParts, int RightParts>
MLXTS_INLINE void multiply_tiles(size_t left, size_t right, const TileOperands& o, TileFetch& fetch) {
  static constexpr void (*all[2][2])(const TileOperands&, TileFetch&) = {
      {multiply_tiles<1, 1, LeftParts, RightParts>, multiply_tiles<1, 2, LeftParts, RightParts>},
      {multiply_tiles<2, 1, LeftParts, RightParts>, multiply_tiles<2, 2, LeftParts, RightParts>}};
  all[left - 1][right - 1](o, fetch);
}

constexpr size_t tiles_of(size_t n, size_t of) { return (n + of - 1) / of; }

}  // namespace mlxts
#endif
