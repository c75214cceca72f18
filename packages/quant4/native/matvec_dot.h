// Inner loops of the matrix-vector product: R rows of W against M rows of x over a span of columns. x lies in the
// order in which codes leave the words, so a vector of words meets whole vectors of x.
#pragma once
#include "matrix_dot.h"
#include "product.h"

namespace mlxts {

// Keeps a loaded vector in a register for its several uses, where the compiler would load it again for each.
MLXTS_INLINE vf32 held(vf32 v) { return rounded(v); }

// Rows of W whose scales are widened.
struct WeightRows {
  const uint8_t* words;  // of the first row
  size_t rowBytes;
  uint32_t count;       // words in a row
  const float* scales;  // [rows, stride]
  size_t stride;
  LaneScales lanes;
  ptrdiff_t ahead;  // bytes from a word to the one that is fetched meanwhile
};

// body(word, words) for chunks of kLanes words of R rows, `word` being the first; other rows are fetched
// meanwhile.
// The last chunk's missing words are 0.
template <int R, typename Body>
MLXTS_INLINE void each_chunk(const WeightRows& w, uint32_t begin, uint32_t end, Body body) {
  vu32 words[R];
  uint32_t word = begin;
  for (; word + kLanes <= end; word += kLanes) {
    MLXTS_UNROLL
    for (int r = 0; r < R; ++r) {
      const uint8_t* p = w.words + r * w.rowBytes + size_t(word) * 4;
      __builtin_prefetch(p + w.ahead, 0, 2);
      words[r] = load_words(p);
    }
    body(word, words);
  }
  if (word == end) return;
  for (int r = 0; r < R; ++r) words[r] = load_words(w.words + r * w.rowBytes + size_t(word) * 4, end - word);
  body(word, words);
}

// acc[r·M + m] += Σ scale·(code·x) of the words begin … end − 1; x is f32, `xStride` floats from row to row.
template <int Bits, int R, int M>
void dot_f32(const WeightRows& w, const float* x, size_t xStride, uint32_t begin, uint32_t end, vf32* sums) {
  const Codes<Bits> codes;
  vf32 acc[R][M];
  for (int r = 0; r < R; ++r)
    for (int m = 0; m < M; ++m) acc[r][m] = sums[r * M + m];
  each_chunk<R>(
      w, begin, end, [&](uint32_t word, vu32 * words) __attribute__((always_inline)) {
        for (int r = 0; r < R; ++r) words[r] = codes.flip(words[r]);
        const size_t column = size_t(word) * kPerWord<Bits>;
        vf32 dot[R][M];
#pragma GCC unroll 8
        for (int j = 0; j < kPerWord<Bits>; ++j) {
          vf32 v[M];
#pragma GCC unroll 8
          for (int m = 0; m < M; ++m) v[m] = held(load(x + m * xStride + column + j * kLanes));
#pragma GCC unroll 4
          for (int r = 0; r < R; ++r) {
            const vf32 code = codes.at(words[r], j);
#pragma GCC unroll 8
            for (int m = 0; m < M; ++m) dot[r][m] = j == 0 ? code * v[m] : fma(code, v[m], dot[r][m]);
          }
        }
#pragma GCC unroll 4
        for (int r = 0; r < R; ++r) {
          const vf32 scale = w.lanes.at(w.scales + r * w.stride, column);
#pragma GCC unroll 8
          for (int m = 0; m < M; ++m) acc[r][m] = fma(dot[r][m], scale, acc[r][m]);
        }
      });
  for (int r = 0; r < R; ++r)
    for (int m = 0; m < M; ++m) sums[r * M + m] = acc[r][m];
}

#if defined(__AVX512BF16__)
// bf16 x. Of each chunk of words, the columns as vdpbf16ps takes them: bf16x2, code by code.

// Codes of half words in bf16: of 8 bits, low and high halves apart. Tables have 32 entries: five bits index them.
template <int Bits>
struct Bf16Codes {
  __m512i low, high;
  MLXTS_INLINE Bf16Codes() {
    alignas(64) uint16_t a[32], b[32];
    for (int i = 0; i < 32; ++i) {
      const float code = float(i % 16);
      a[i] = from_f32<bf16>(Bits == 4 ? code - 8 : code).bits;
      b[i] = from_f32<bf16>(Bits == 4 ? code - 8 : 16 * (code - 8)).bits;
    }
    low = _mm512_load_si512(a);
    high = _mm512_load_si512(b);
  }
  MLXTS_INLINE vu32 at(vu32 words, int j) const {
    const __m512i shifted = _mm512_srli_epi16(reinterpret_cast<__m512i>(words), uint32_t(4 * j));
    return reinterpret_cast<vu32>(_mm512_permutexvar_epi16(shifted, j % 2 == 0 ? low : high));
  }
};

// Vectors of x for a chunk.
template <int Bits>
inline constexpr int kBf16Vectors = Bits == 4 ? 4 : 2;

// As dot_f32; `xStride` bf16 from row to row.
template <int Bits, int R, int M>
void dot_bf16(const WeightRows& w, const uint16_t* x, size_t xStride, uint32_t begin, uint32_t end, vf32* sums) {
  const Bf16Codes<Bits> codes;
  constexpr int vectors = kBf16Vectors<Bits>;
  // Few sums at once: two chains for each hide the latency.
  constexpr int chains = R * M < 8 ? 2 : 1;
  vf32 acc[R][M];
  for (int r = 0; r < R; ++r)
    for (int m = 0; m < M; ++m) acc[r][m] = sums[r * M + m];
  each_chunk<R>(
      w, begin, end, [&](uint32_t word, const vu32* words) __attribute__((always_inline)) {
        const uint16_t* at = x + size_t(word / kLanes) * (vectors * 32);
        vf32 dot[R][M][chains] = {};
#pragma GCC unroll 4
        for (int j = 0; j < 4; ++j) {
          vu32 code[R];
#pragma GCC unroll 4
          for (int r = 0; r < R; ++r) code[r] = codes.at(words[r], j);
#pragma GCC unroll 4
          for (int m = 0; m < M; ++m) {
            const uint16_t* p = at + m * xStride + j * vectors / 4 * 32;
            const vu32 v = reinterpret_cast<vu32>(held(reinterpret_cast<vf32>(_mm512_load_si512(p))));
#pragma GCC unroll 4
            for (int r = 0; r < R; ++r) {
              vf32& sum = dot[r][m][j % chains];
              sum = dot_bf16x2(sum, code[r], v);
            }
          }
        }
#pragma GCC unroll 4
        for (int r = 0; r < R; ++r) {
          const vf32 scale = w.lanes.at(w.scales + r * w.stride, size_t(word) * kPerWord<Bits>);
#pragma GCC unroll 4
          for (int m = 0; m < M; ++m) {
            const vf32 sum = chains == 2 ? dot[r][m][0] + dot[r][m][1] : dot[r][m][0];
            acc[r][m] = fma(sum, scale, acc[r][m]);
          }
        }
      });
  for (int r = 0; r < R; ++r)
    for (int m = 0; m < M; ++m) sums[r * M + m] = acc[r][m];
}
#endif

}  // namespace mlxts
