// Small dense products and transposes that the kernels of the delta rule share.
#pragma once
#include "simd.h"

#if defined(__clang__)
#define MLXTS_UNROLL _Pragma("unroll")
#else
#define MLXTS_UNROLL _Pragma("GCC unroll 16")
#endif

namespace mlxts {

typedef float vf32x4 __attribute__((vector_size(16)));

MLXTS_INLINE vf32x4 load4(const float* p) {
  vf32x4 v;
  memcpy(&v, p, sizeof v);
  return v;
}
MLXTS_INLINE void store4(float* p, vf32x4 v) { memcpy(p, &v, sizeof v); }

// Rows become columns, in registers; moves bits only.
MLXTS_INLINE void transpose4(vf32x4& a, vf32x4& b, vf32x4& c, vf32x4& d) {
  const vf32x4 ab_low = __builtin_shufflevector(a, b, 0, 4, 1, 5), ab_high = __builtin_shufflevector(a, b, 2, 6, 3, 7);
  const vf32x4 cd_low = __builtin_shufflevector(c, d, 0, 4, 1, 5), cd_high = __builtin_shufflevector(c, d, 2, 6, 3, 7);
  a = __builtin_shufflevector(ab_low, cd_low, 0, 1, 4, 5);
  b = __builtin_shufflevector(ab_low, cd_low, 2, 3, 6, 7);
  c = __builtin_shufflevector(ab_high, cd_high, 0, 1, 4, 5);
  d = __builtin_shufflevector(ab_high, cd_high, 2, 3, 6, 7);
}

#if defined(__AVX512F__)
inline constexpr size_t kBlock = 16;

// A kBlock × kBlock block: four rounds of interleaving rows i and i + 8.
MLXTS_INLINE void transpose_block(const float* from, size_t from_stride, float* to, size_t to_stride) {
  vf32 a[16], b[16];
  MLXTS_UNROLL
  for (int i = 0; i < 16; ++i) a[i] = load(from + i * from_stride);
  const auto interleave = [](const vf32* in, vf32* out) __attribute__((always_inline)) {
    MLXTS_UNROLL
    for (int i = 0; i < 8; ++i) {
      out[2 * i] = __builtin_shufflevector(in[i], in[i + 8], 0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23);
      out[2 * i + 1] =
          __builtin_shufflevector(in[i], in[i + 8], 8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31);
    }
  };
  interleave(a, b);
  interleave(b, a);
  interleave(a, b);
  interleave(b, a);
  MLXTS_UNROLL
  for (int i = 0; i < 16; ++i) store(to + i * to_stride, a[i]);
}
#else
inline constexpr size_t kBlock = 4;

MLXTS_INLINE void transpose_block(const float* from, size_t from_stride, float* to, size_t to_stride) {
  vf32x4 v[4];
  for (int i = 0; i < 4; ++i) v[i] = load4(from + i * from_stride);
  transpose4(v[0], v[1], v[2], v[3]);
  for (int i = 0; i < 4; ++i) store4(to + i * to_stride, v[i]);
}
#endif

// to[c][r] = from[r][c] for rows × columns of 4-byte elements.
inline void transpose(const float* from, size_t from_stride, size_t rows, size_t columns, float* to, size_t to_stride) {
  const size_t whole_rows = rows / kBlock * kBlock, whole_columns = columns / kBlock * kBlock;
  for (size_t r = 0; r < whole_rows; r += kBlock)
    for (size_t c = 0; c < whole_columns; c += kBlock)
      transpose_block(from + r * from_stride + c, from_stride, to + c * to_stride + r, to_stride);
  for (size_t r = 0; r < rows; ++r)
    for (size_t c = r < whole_rows ? whole_columns : 0; c < columns; ++c)
      to[c * to_stride + r] = from[r * from_stride + c];
}

// Lane sums of four vectors.
MLXTS_INLINE vf32x4 reduce_add4(const vf32* v) {
  vf32x4 parts[4];
  for (int i = 0; i < 4; ++i) {
#if defined(__AVX512F__)
    const __m512 x = reinterpret_cast<__m512>(v[i]);
    const __m256 half = _mm512_castps512_ps256(x) + _mm512_extractf32x8_ps(x, 1);
    parts[i] = reinterpret_cast<vf32x4>(_mm256_castps256_ps128(half) + _mm256_extractf128_ps(half, 1));
#elif defined(__AVX2__)
    const __m256 x = reinterpret_cast<__m256>(v[i]);
    parts[i] = reinterpret_cast<vf32x4>(_mm256_castps256_ps128(x) + _mm256_extractf128_ps(x, 1));
#else
    static_assert(kLanes == 4);
    memcpy(&parts[i], &v[i], sizeof parts[i]);
#endif
  }
  transpose4(parts[0], parts[1], parts[2], parts[3]);
  return (parts[0] + parts[1]) + (parts[2] + parts[3]);
}

// A row of n elements widened to f32.
template <typename T>
MLXTS_INLINE void widen_row(float* to, const T* from, size_t n) {
  for_lanes(
      n, [&](size_t i) { store(to + i, load(from + i)); },
      [&](size_t i, int m) { store_partial(to + i, load_partial(from + i, m), m); });
}

// A row of n f32 elements rounded to T.
template <typename T>
MLXTS_INLINE void narrow_row(T* to, const float* from, size_t n) {
  for_lanes(
      n, [&](size_t i) { store(to + i, load(from + i)); },
      [&](size_t i, int m) { store_partial(to + i, load_partial(from + i, m), m); });
}

// Natural logarithm of normal x > 0: x = 2^n·m with m around 1, then 2·artanh((m − 1)/(m + 1)).
MLXTS_INLINE vf32 log(vf32 x) {
  const vi32 n = (as_i32(x) - splat_i32(0x3f3504f3)) >> 23;
  const vf32 m = as_f32(as_i32(x) - (n << 23));
  const vf32 s = (m - splat(1.0f)) / (m + splat(1.0f));
  const vf32 z = s * s;
  vf32 p = splat(2.0f / 9);
  p = p * z + splat(2.0f / 7);
  p = p * z + splat(2.0f / 5);
  p = p * z + splat(2.0f / 3);
  const vf32 k = __builtin_convertvector(n, vf32);
  // The high part of log 2 has so few digits that k times it is exact.
  return k * splat(0x1.62e4p-1f) + (k * splat(0x1.7f7d1cp-20f) + (p * z * s + (s + s)));
}

// The first `count` elements, if that is less than all.
template <typename T>
MLXTS_INLINE void store_up_to(T* to, vf32 v, size_t count) {
  if (count >= kLanes) return store(to, v);
#if defined(__AVX512F__)
  // GCC 12 sees elements beyond the vector in the portable form.
  if constexpr (std::is_same_v<T, float>)
    return _mm512_mask_storeu_ps(to, __mmask16((1u << count) - 1), reinterpret_cast<__m512>(v));
#endif
  store_partial(to, v, int(count));
}

// Tiles of a product hold their sums in registers: kTileRows rows by up to kTileVectors vectors of columns.
inline constexpr int kTileRows = 4;
#if defined(__AVX512F__) || defined(__aarch64__)
inline constexpr int kTileVectors = 4;
#else
inline constexpr int kTileVectors = 2;
#endif

template <int R, int N>
struct Tile {
  static constexpr int rows = R, vectors = N;
  size_t row, column;
  vf32 sum[R][N] = {};

  // sum += A·B over `count` terms: A(r, m) at a[r·row_stride + m·step], B(m, ·) at b + m·b_stride.
  // The pointers are those of the tile's first row and first column.
  MLXTS_INLINE void accumulate(const float* a, size_t row_stride, size_t step, const float* b, size_t b_stride,
                               size_t count) {
    for (size_t m = 0; m < count; ++m) {
      vf32 columns[N];
      MLXTS_UNROLL
      for (int j = 0; j < N; ++j) columns[j] = load(b + m * b_stride + j * kLanes);
      MLXTS_UNROLL
      for (int r = 0; r < R; ++r) {
        const vf32 left = splat(a[r * row_stride + m * step]);
        MLXTS_UNROLL
        for (int j = 0; j < N; ++j) sum[r][j] = fma(left, columns[j], sum[r][j]);
      }
    }
  }
#if defined(__AVX512BF16__)
  // The same with bf16 operands in pairs: a word of A holds two neighboring terms of a row, a word of B those of a
  // column.
  MLXTS_INLINE void accumulate_pairs(const uint32_t* a, size_t row_stride, size_t step, const uint32_t* b,
                                     size_t b_stride, size_t pairs) {
    for (size_t m = 0; m < pairs; ++m) {
      __m512i columns[N];
      MLXTS_UNROLL
      for (int j = 0; j < N; ++j) columns[j] = _mm512_loadu_si512(b + m * b_stride + j * kLanes);
      MLXTS_UNROLL
      for (int r = 0; r < R; ++r) {
        const __m512i left = _mm512_set1_epi32(int(a[r * row_stride + m * step]));
        MLXTS_UNROLL
        for (int j = 0; j < N; ++j)
          sum[r][j] = reinterpret_cast<vf32>(_mm512_dpbf16_ps(reinterpret_cast<__m512>(sum[r][j]),
                                                              reinterpret_cast<__m512bh>(left),
                                                              reinterpret_cast<__m512bh>(columns[j])));
      }
    }
  }
#endif
  // Multiplies the sums of each row of the product by factor[row].
  MLXTS_INLINE void scale_rows(const float* factor) {
    MLXTS_UNROLL
    for (int r = 0; r < R; ++r) MLXTS_UNROLL
    for (int j = 0; j < N; ++j) sum[r][j] *= splat(factor[row + r]);
  }
  // body(row, column, sum) for every vector.
  template <typename Body>
  MLXTS_INLINE void each(Body body) {
    MLXTS_UNROLL
    for (int r = 0; r < R; ++r) MLXTS_UNROLL
    for (int j = 0; j < N; ++j) body(row + r, column + j * kLanes, sum[r][j]);
  }
};

template <int R, typename Body>
MLXTS_INLINE void tile_row(size_t row, size_t columns, Body& body) {
  size_t j = 0;
  if constexpr (kTileVectors == 4)
    for (; j + 3 * kLanes < columns; j += 4 * kLanes) body(Tile<R, 4>{row, j});
  if (j + 2 * kLanes < columns && kTileVectors == 4) {
    body(Tile<R, 3>{row, j});
    return;
  }
  for (; j + kLanes < columns; j += 2 * kLanes) body(Tile<R, 2>{row, j});
  if (j < columns) body(Tile<R, 1>{row, j});
}

// body(tile) for the tiles of a product with `rows` rows; the tiles of rows up to `end` cover columns(end) columns, the
// last one up to a whole vector.
template <typename Columns, typename Body>
MLXTS_INLINE void for_tiles(size_t rows, Columns columns, Body body) {
  size_t r = 0;
  for (; r + kTileRows <= rows; r += kTileRows) tile_row<kTileRows>(r, columns(r + kTileRows), body);
  for (; r < rows; ++r) tile_row<1>(r, columns(r + 1), body);
}

// The numbers 0, 1, 2, … in the lanes.
MLXTS_INLINE vi32 lane_index() {
  vi32 v;
  for (int i = 0; i < kLanes; ++i) v[i] = i;
  return v;
}

// Two vectors rounded to bf16, element by element in one word: `first` below `second`.
MLXTS_INLINE vu32 pair_up(vf32 first, vf32 second) {
  return (reinterpret_cast<vu32>(round_to<bf16>(first)) >> 16) | reinterpret_cast<vu32>(round_to<bf16>(second));
}

// Rows 2i and 2i + 1 of `from` become row i of words; a missing last row counts as zeros. `columns`: whole vectors.
MLXTS_INLINE void pair_rows(const float* from, size_t stride, size_t rows, size_t columns, uint32_t* to,
                            size_t to_stride) {
  for (size_t r = 0; r < rows; r += 2)
    for (size_t c = 0; c < columns; c += kLanes) {
      const float* at = from + r * stride + c;
      const vu32 words = pair_up(load(at), r + 1 < rows ? load(at + stride) : vf32{});
      memcpy(to + r / 2 * to_stride + c, &words, sizeof words);
    }
}

// Asks for rows of `bytes` each ahead of their use.
MLXTS_INLINE void prefetch_rows(const void* first, size_t stride_bytes, size_t rows, size_t bytes) {
  for (size_t r = 0; r < rows; ++r)
    for (size_t at = 0; at < bytes; at += 64)
      __builtin_prefetch(static_cast<const char*>(first) + r * stride_bytes + at, 0, 2);
}

MLXTS_INLINE size_t round_up(size_t n, size_t unit) { return (n + unit - 1) / unit * unit; }

}  // namespace mlxts
