// Register tiles for matrix products: rows of `a` against a packed panel of kTileColumns columns, in f32; and the same
// for pairs of bf16 where the processor multiplies them. Panels are padded with zeros, so tiles have no column tail.
#pragma once
#include "simd.h"

namespace mlxts {

inline constexpr int kTileRows = 6;
// `keep` of a tile that adds.
inline constexpr float kAll[kTileRows] = {1, 1, 1, 1, 1, 1};
#if defined(__AVX512F__) || defined(__aarch64__)
inline constexpr int kTileVectors = 4;
#else
inline constexpr int kTileVectors = 2;
#endif
inline constexpr int kTileColumns = kTileVectors * kLanes;

#if defined(__AVX512BF16__)
inline constexpr bool kHasPairs = true;
#else
inline constexpr bool kHasPairs = false;
#endif

// Pairs of bf16 that are neighbors along the contracted dimension; the first in the low half.
typedef uint32_t pair;

#if defined(__AVX512BF16__)
// acc + a · b, both products of each pair.
MLXTS_INLINE vf32 add_pairs(vf32 acc, vf32 a, vf32 b) {
  return reinterpret_cast<vf32>(_mm512_dpbf16_ps(reinterpret_cast<__m512>(acc), (__m512bh) reinterpret_cast<__m512i>(a),
                                                 (__m512bh) reinterpret_cast<__m512i>(b)));
}
#endif

// acc + x · b for one broadcast element of a.
MLXTS_INLINE vf32 tile_step(vf32 acc, float x, vf32 b) { return fma(splat(x), b, acc); }
#if defined(__AVX512BF16__)
MLXTS_INLINE vf32 tile_step(vf32 acc, pair x, vf32 b) { return add_pairs(acc, as_f32(splat_i32(int32_t(x))), b); }
#endif

// c = a · panel, plus keep[r] times what row r of c had if `keep` is given; a: R rows of `depth` elements (float or
// pair) at any alignment, panel [depth][kTileColumns].
template <typename E, int R, int V>
__attribute__((noinline)) void tile(const void* a, size_t aStrideBytes, const E* panel, size_t depth, float* c,
                                    size_t cStride, const float* keep) {
  vf32 sum[R][V];
#pragma GCC unroll 6
  for (int r = 0; r < R; ++r)
#pragma GCC unroll 4
    for (int v = 0; v < V; ++v) sum[r][v] = keep ? load(c + r * cStride + v * kLanes) * splat(keep[r]) : vf32{};
  const char* row = static_cast<const char*>(a);
  for (size_t k = 0; k < depth; ++k, row += sizeof(E), panel += kTileColumns) {
    vf32 b[V];
#pragma GCC unroll 4
    for (int v = 0; v < V; ++v) memcpy(&b[v], panel + v * kLanes, sizeof b[v]);
#pragma GCC unroll 6
    for (int r = 0; r < R; ++r) {
      E x;
      memcpy(&x, row + r * aStrideBytes, sizeof x);
#pragma GCC unroll 4
      for (int v = 0; v < V; ++v) sum[r][v] = tile_step(sum[r][v], x, b[v]);
    }
  }
#pragma GCC unroll 6
  for (int r = 0; r < R; ++r)
#pragma GCC unroll 4
    for (int v = 0; v < V; ++v) store(c + r * cStride + v * kLanes, sum[r][v]);
}

// The tile of `rows` ≤ kTileRows rows and `vectors` ≤ kTileVectors vectors of columns.
template <typename E>
MLXTS_INLINE void run_tile(int rows, int vectors, const void* a, size_t aStrideBytes, const E* panel, size_t depth,
                           float* c, size_t cStride, const float* keep) {
  typedef void (*Tile)(const void*, size_t, const E*, size_t, float*, size_t, const float*);
#define MLXTS_TILE_ROW(R)                                                                         \
  {                                                                                               \
    tile<E, R, 1>, tile<E, R, 2>, tile<E, R, kTileVectors == 4 ? 3 : 2>, tile<E, R, kTileVectors> \
  }
  static constexpr Tile tiles[kTileRows][4] = {MLXTS_TILE_ROW(1), MLXTS_TILE_ROW(2), MLXTS_TILE_ROW(3),
                                               MLXTS_TILE_ROW(4), MLXTS_TILE_ROW(5), MLXTS_TILE_ROW(6)};
#undef MLXTS_TILE_ROW
  tiles[rows - 1][vectors - 1](a, aStrideBytes, panel, depth, c, cStride, keep);
}

MLXTS_INLINE vf32 interleave_low(vf32 a, vf32 b) {
#if defined(__AVX512F__)
  return __builtin_shufflevector(a, b, 0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23);
#elif defined(__AVX2__)
  return __builtin_shufflevector(a, b, 0, 8, 1, 9, 2, 10, 3, 11);
#else
  return __builtin_shufflevector(a, b, 0, 4, 1, 5);
#endif
}
MLXTS_INLINE vf32 interleave_high(vf32 a, vf32 b) {
#if defined(__AVX512F__)
  return __builtin_shufflevector(a, b, 8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31);
#elif defined(__AVX2__)
  return __builtin_shufflevector(a, b, 4, 12, 5, 13, 6, 14, 7, 15);
#else
  return __builtin_shufflevector(a, b, 2, 6, 3, 7);
#endif
}

// v as a kLanes × kLanes matrix, transposed: log2(kLanes) perfect shuffles of the rows.
MLXTS_INLINE void transpose(vf32 (&v)[kLanes]) {
#pragma GCC unroll 4
  for (int width = 1; width < kLanes; width *= 2) {
    vf32 w[kLanes];
#pragma GCC unroll 16
    for (int i = 0; i < kLanes / 2; ++i) {
      w[2 * i] = interleave_low(v[i], v[i + kLanes / 2]);
      w[2 * i + 1] = interleave_high(v[i], v[i + kLanes / 2]);
    }
#pragma GCC unroll 16
    for (int i = 0; i < kLanes; ++i) v[i] = w[i];
  }
}

// 2 · kLanes bf16 as they lie, one pair to a lane, and the pair's halves widened.
MLXTS_INLINE vf32 load_pairs(const bf16* p) {
  vf32 v;
  memcpy(&v, p, sizeof v);
  return v;
}
MLXTS_INLINE vf32 first_of(vf32 pairs) { return as_f32(as_i32(pairs) << 16); }
MLXTS_INLINE vf32 second_of(vf32 pairs) { return reinterpret_cast<vf32>(reinterpret_cast<vu32>(pairs) & 0xffff0000u); }

// panel[k][j] = w[j][k] for j < columns, else 0: a panel of the transposed of `columns` rows of w. The rows' short
// pieces are nothing that the hardware prefetches: what is packed next, `ahead` elements on, is asked for here.
template <typename W>
void pack_transposed(const W* w, size_t stride, int columns, size_t depth, ptrdiff_t ahead, float* panel) {
  for (int v = 0; v < kTileVectors; ++v, panel += kLanes) {
    const int valid = columns - v * kLanes;
    const W* rows = w + v * kLanes * stride;
    size_t k = 0;
    vf32 block[kLanes];
    if constexpr (std::is_same_v<W, bf16>) {
      for (; k + 2 * kLanes <= depth; k += 2 * kLanes) {
        for (int i = 0; i < kLanes; ++i) {
          const bf16* from = rows + i * stride + k;
          __builtin_prefetch(from + ahead, 0, 2);
          block[i] = i < valid ? load_pairs(from) : vf32{};
        }
        transpose(block);
        for (int i = 0; i < kLanes; ++i) {
          store(panel + (k + 2 * i) * kTileColumns, first_of(block[i]));
          store(panel + (k + 2 * i + 1) * kTileColumns, second_of(block[i]));
        }
      }
    }
    for (; k < depth; k += kLanes) {
      const int n = depth - k < kLanes ? int(depth - k) : kLanes;
      for (int i = 0; i < kLanes; ++i) {
        const W* from = rows + i * stride + k;
        __builtin_prefetch(from + ahead, 0, 2);
        block[i] = i >= valid ? vf32{} : n == kLanes ? load(from) : load_partial(from, n);
      }
      transpose(block);
      for (int i = 0; i < n; ++i) store(panel + (k + i) * kTileColumns, block[i]);
    }
  }
}

// panel[k][j] = w[k][j] for j < columns, else 0.
template <typename W>
void pack(const W* w, size_t stride, int columns, size_t depth, ptrdiff_t ahead, float* panel) {
  for (size_t k = 0; k < depth; ++k, w += stride, panel += kTileColumns)
    for (int j = 0; j < kTileColumns; j += kLanes) {
      __builtin_prefetch(w + j + ahead, 0, 2);
      store(panel + j, columns - j >= kLanes ? load(w + j) : columns > j ? load_partial(w + j, columns - j) : vf32{});
    }
}

// The same panels of pairs along k: [⌈depth / 2⌉][kTileColumns], an odd last element paired with 0.
inline void pack_transposed(const bf16* w, size_t stride, int columns, size_t depth, ptrdiff_t ahead, pair* panel) {
  for (int v = 0; v < kTileVectors; ++v, panel += kLanes) {
    const int valid = columns - v * kLanes;
    const bf16* rows = w + v * kLanes * stride;
    vf32 block[kLanes];
    for (size_t k = 0; k < depth; k += 2 * kLanes) {
      const size_t n = depth - k < 2 * kLanes ? depth - k : 2 * kLanes;
      for (int i = 0; i < kLanes; ++i) {
        const bf16* from = rows + i * stride + k;
        __builtin_prefetch(from + ahead, 0, 2);
        if (i >= valid) {
          block[i] = vf32{};
        } else if (n == 2 * kLanes) {
          block[i] = load_pairs(from);
        } else {
          bf16 some[2 * kLanes] = {};
          memcpy(some, from, n * sizeof(bf16));
          block[i] = load_pairs(some);
        }
      }
      transpose(block);
      for (size_t i = 0; 2 * i < n; ++i) memcpy(panel + (k / 2 + i) * kTileColumns, &block[i], sizeof block[i]);
    }
  }
}
inline void pack(const bf16* w, size_t stride, int columns, size_t depth, ptrdiff_t ahead, pair* panel) {
  const auto widened = [](const bf16* from, int n) {
    vu16 bits = {};
    if (n >= kLanes)
      memcpy(&bits, from, sizeof bits);
    else if (n > 0)
      memcpy(&bits, from, n * sizeof(bf16));
    return __builtin_convertvector(bits, vu32);
  };
  for (size_t k = 0; k < depth; k += 2, w += 2 * stride, panel += kTileColumns)
    for (int j = 0; j < kTileColumns; j += kLanes) {
      __builtin_prefetch(w + j + ahead, 0, 2);
      __builtin_prefetch(w + stride + j + ahead, 0, 2);
      const vu32 both = widened(w + j, columns - j) | widened(w + stride + j, k + 1 < depth ? columns - j : 0) << 16;
      memcpy(panel + j, &both, sizeof both);
    }
}

}  // namespace mlxts
