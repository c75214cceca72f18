// Inner loops of the matrix-vector product: R rows of W against M rows of x over a span of columns. x lies in the
// order in which codes leave the words, so a vector of words meets whole vectors of x.
#pragma once
#include "matrix_dot.h"
#include "product.h"

namespace mlxts {

// Rows of W that are multiplied together lie side by side, and what is fetched meanwhile comes next in the order of
// memory, one stream: a Zen 5 reads it at 36–40 GB/s, and four rows, each fetched for itself, at 26. Or they lie far
// apart, each in a part of the rows of its own: a Granite Rapids reads such streams at 14–16 GB/s, one alone at 8–10.
#if defined(__AMX_TILE__)
inline constexpr bool kFarRows = true;
#else
inline constexpr bool kFarRows = false;
#endif
inline constexpr uint32_t kParts = 4;
constexpr size_t kChunkBytes = kLanes * 4;  // of words
constexpr ptrdiff_t kLineBytes = 64;
// What is fetched lies so many bytes ahead of the words; far apart, of scales, too. Processors with AVX2 alone have
// first caches of 32 KiB.
inline constexpr size_t kFetchBytes = kFarRows ? 1 << 10 : kLanes == 8 ? 3 << 10 : 8 << 10;
inline constexpr ptrdiff_t kFarScaleBytes = 256;
// Far apart, it is fetched twice, where that leaves time for the products: into the second cache, and later into the
// first, which has too few places for lines that are still on their way from memory. Four streams are read at 20 GB/s
// so, and at 18 with one fetch. Side by side, rows that are multiplied in parts are each fetched for themselves.
enum class Fetch { once, twice, parts };
inline constexpr size_t kSecondCacheBytes = 1536;
inline constexpr ptrdiff_t kFirstCacheScaleBytes = 128;

// How far ahead of the rows that are multiplied those lie that are fetched meanwhile, in bytes; they may be of another
// matrix.
struct FetchAhead {
  ptrdiff_t words, scales, biases;
};
MLXTS_INLINE FetchAhead operator+(const FetchAhead& a, const FetchAhead& b) {
  return {a.words + b.words, a.scales + b.scales, a.biases + b.biases};
}
MLXTS_INLINE ptrdiff_t distance(const uint8_t* from, const uint8_t* to) {
  return ptrdiff_t(uintptr_t(to) - uintptr_t(from));
}
MLXTS_INLINE void fetch_second_cache(const uint8_t* p, ptrdiff_t ahead) {
  fetch<2>(p, ahead);
}

// Rows of W, with their scales and biases as they lie: those may begin at any byte.
struct WeightRows {
  const uint8_t* words;              // of the first row
  size_t rowBytes;                   // to the next of the rows that are multiplied together
  uint32_t count;                    // words in a row
  const uint8_t *scales, *biases;    // of the first row
  size_t scaleRowBytes;              // as rowBytes
  uint32_t groups;                   // in a row
  size_t nextBytes, nextScaleBytes;  // to the next row in memory; less than rowBytes: rows lie far apart
  ScaleType scaleType;
  uint32_t shift;  // log2 of the columns of a group
  FetchAhead ahead;

  MLXTS_INLINE void skip(ptrdiff_t rows) {
    words += rows * ptrdiff_t(nextBytes);
    scales += rows * ptrdiff_t(nextScaleBytes);
    biases += rows * ptrdiff_t(nextScaleBytes);
  }
};

// Rows of x in the order in which codes leave the words, and the sums of their groups.
template <typename T>
struct XRows {
  const T* ordered;
  size_t stride;  // from row to row
  const float* sums;
  size_t sumStride;
};

// A row's scales and biases are widened kLanes groups at a time: a section of words.
template <int Bits>
MLXTS_INLINE uint32_t section_words(uint32_t shift) {
  return (uint32_t(kLanes) << shift) / kPerWord<Bits>;
}

// body<S>() for scales and biases of type S; with more than one row of x, whose products take far longer, of any type.
template <int M, typename Body>
MLXTS_INLINE void with_scale_type(ScaleType type, Body body) {
  if constexpr (M > 1)
    body.template operator()<AnyScale>();
  else if (type == ScaleType::bf16)
    body.template operator()<bf16>();
  else if (type == ScaleType::f16)
    body.template operator()<f16>();
  else
    body.template operator()<float>();
}

// Fetches what comes after the scales and biases of a section of R rows, which begin at byte `at` of each row.
template <int R, Fetch F, typename S>
MLXTS_INLINE void fetch_scales(const WeightRows& w, size_t at) {
  if constexpr (!kFarRows) {
    if constexpr (F == Fetch::parts) {
      MLXTS_UNROLL
      for (int r = 0; r < R; ++r) {
        fetch(w.scales + r * w.scaleRowBytes + at, w.ahead.scales);
        fetch(w.biases + r * w.scaleRowBytes + at, w.ahead.biases);
      }
      return;
    }
    const uint8_t *s = w.scales + R * at, *b = w.biases + R * at;
    const ptrdiff_t bytes = R * kLanes * ptrdiff_t(bytes_of<S>(w.scaleType));
    MLXTS_UNROLL
    for (ptrdiff_t i = 0; i < bytes; i += kLineBytes) {
      fetch(s, w.ahead.scales + i);
      fetch(b, w.ahead.biases + i);
    }
    return;
  }
  MLXTS_UNROLL
  for (int r = 0; r < R; ++r) {
    const uint8_t *s = w.scales + r * w.scaleRowBytes + at, *b = w.biases + r * w.scaleRowBytes + at;
    if constexpr (F == Fetch::twice) {
      fetch_second_cache(s, kFarScaleBytes);
      fetch_second_cache(b, kFarScaleBytes);
    }
    constexpr ptrdiff_t far = F == Fetch::twice ? kFirstCacheScaleBytes : kFarScaleBytes;
    fetch(s, far);
    fetch(b, far);
  }
}

// Widens the scales of R rows for the section that begins at group `group`, and adds what its biases give to acc:
// those of codes less the center.
template <int R, int M, Fetch F, typename S>
MLXTS_INLINE void begin_section(const WeightRows& w, const float* sums, size_t sumStride, uint32_t group, float center,
                                vf32 (&scales)[R], vf32 (&acc)[R][M]) {
  const uint32_t n = w.groups - group;
  const size_t at = size_t(group) * bytes_of<S>(w.scaleType);
  vf32 bias[R];
  fetch_scales<R, F, S>(w, at);
  const auto load = [&](auto scales_at) __attribute__((always_inline)) {
    MLXTS_UNROLL
    for (int r = 0; r < R; ++r) {
      const size_t row = r * w.scaleRowBytes + at;
      scales[r] = in_register(scales_at(w.scales + row));
      bias[r] = scales_at(w.biases + row);
      if (center != 0) bias[r] = fma(splat(center), scales[r], bias[r]);
    }
  };
  if (n >= uint32_t(kLanes))
    load([&](const uint8_t* p) { return load_scales<S>(w.scaleType, p, kLanes); });
  else
    load([&](const uint8_t* p) { return load_scales<S>(w.scaleType, p, n); });
  MLXTS_UNROLL
  for (int m = 0; m < M; ++m) {
    const vf32 sum = mlxts::load(sums + m * sumStride + group);
    MLXTS_UNROLL
    for (int r = 0; r < R; ++r) acc[r][m] = fma(bias[r], sum, acc[r][m]);
  }
}

// body(first, last, scales) for the sections of the words begin … end − 1 of R rows: the words first … last − 1, and
// the scales of their groups. What their biases give, those of codes less the center, is added to acc.
template <int Bits, Fetch F, int R, int M, typename S, typename T, typename Body>
MLXTS_INLINE void each_section(const WeightRows& w, const XRows<T>& x, uint32_t begin, uint32_t end, float center,
                               vf32 (&acc)[R][M], Body body) {
  const uint32_t section = section_words<Bits>(w.shift);
  for (uint32_t first = begin; first < end; first += section) {
    vf32 scales[R];
    begin_section<R, M, F, S>(w, x.sums, x.sumStride, first * kPerWord<Bits> >> w.shift, center, scales, acc);
    body(first, end - first < section ? end : first + section, scales);
  }
}

// body(chunk, words_of, lanes) for chunks of kLanes words of R rows of a section: the chunk's number in it, a function
// that reads those of row r, and the ChunkScales of its lanes. The last chunk's missing words are 0. What lies ahead is
// fetched whenever a row is read: several lines at once take up to 10 % longer to come.
template <int Bits, Fetch F, int R, typename Body>
MLXTS_INLINE void each_chunk(const WeightRows& w, uint32_t first, uint32_t last, Body body) {
  const size_t rowBytes = w.rowBytes;
  // Of whole rows, what is fetched comes next in the order of memory.
  constexpr size_t step = F == Fetch::parts ? 1 : R;
  const size_t apart = F == Fetch::parts ? rowBytes : kChunkBytes;
  const uint8_t *at = w.words + size_t(first) * 4, *ahead = w.words + w.ahead.words + size_t(first) * 4 * step;
  ChunkScales<Bits> lanes(w.shift);
  uint32_t chunk = 0, left = last - first;
  for (; left >= kLanes; left -= kLanes, ++chunk, at += kChunkBytes, ahead += step * kChunkBytes) {
    const auto words_of = [&](int r) __attribute__((always_inline)) {
      const uint8_t* row = at + r * rowBytes;
      const vu32 words = load_words(row);
      if constexpr (!kFarRows) {
        // Chunks of neighboring rows share lines.
        if (F == Fetch::parts || r * kChunkBytes % kLineBytes == 0) fetch(ahead, ptrdiff_t(r * apart));
      } else {
        if constexpr (F == Fetch::twice) fetch_second_cache(row, kSecondCacheBytes);
        fetch(row, kFetchBytes);
      }
      return words;
    };
    body(chunk, words_of, lanes);
    lanes.next();
  }
  if (left > 0) body(chunk, [&](int r) { return load_words(at + r * rowBytes, left); }, lanes);
}

// sums[r·stride + m] += the products of row r of W and row m of x, of the words begin … end − 1, over lanes; f32 x.
template <int Bits, Fetch F, int R, int M, typename S>
void dot_f32(const WeightRows& w, const XRows<float>& x, uint32_t begin, uint32_t end, vf32* sums, size_t stride) {
  const Codes<Bits> codes;
  vf32 acc[R][M] = {};
  each_section<Bits, F, R, M, S>(w, x, begin, end, kCenter<Bits>, acc, [&](uint32_t first, uint32_t last,
                                                                           const vf32 (&scales)[R]) {
    const float* section = x.ordered + size_t(first) * kPerWord<Bits>;
    each_chunk<Bits, F, R>(
      w, first, last,
      [&](uint32_t chunk, auto words_of, const ChunkScales<Bits>& lanes) __attribute__((always_inline)) {
        vu32 words[R];
        for (int r = 0; r < R; ++r) words[r] = codes.flip(words_of(r));
        const float* at = section + chunk * kChunk<Bits>;
        vf32 dot[R][M];
#pragma GCC unroll 8
        for (int j = 0; j < kPerWord<Bits>; ++j) {
          vf32 v[M];
#pragma GCC unroll 8
          for (int m = 0; m < M; ++m) v[m] = in_register(load(at + m * x.stride + j * kLanes));
#pragma GCC unroll 4
          for (int r = 0; r < R; ++r) {
            const vf32 code = codes.at(words[r], j);
#pragma GCC unroll 8
            for (int m = 0; m < M; ++m) dot[r][m] = j == 0 ? code * v[m] : fma(code, v[m], dot[r][m]);
          }
        }
#pragma GCC unroll 4
        for (int r = 0; r < R; ++r) {
          const vf32 scale = lanes.of(scales[r]);
#pragma GCC unroll 8
          for (int m = 0; m < M; ++m) acc[r][m] = fma(dot[r][m], scale, acc[r][m]);
        }
      });
  });
  for (int r = 0; r < R; ++r)
    for (int m = 0; m < M; ++m) sums[r * stride + m] += acc[r][m];
}

}  // namespace mlxts
