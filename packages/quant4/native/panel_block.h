// What all panels share (panels.h): a block of rows of W, the tiles of rows of x that meet it, and the block that is
// fetched meanwhile.
#pragma once
#include "matrix_microkernel.h"
#include "matrix_transpose.h"
#include "product.h"
#include "quantized_matmul.params.h"

namespace mlxts {

constexpr uint32_t kBlock = QUANTIZED_MATMUL_BLOCK_ROWS;      // rows of W of a threadgroup
constexpr uint32_t kF32Depth = QUANTIZED_MATMUL_F32_DEPTH;    // columns of W in a panel of f32
constexpr uint32_t kCodeDepth = QUANTIZED_MATMUL_CODE_DEPTH;  // and of codes
static_assert(kLanes <= QUANTIZED_MATMUL_LANES);

// The rows of W of a threadgroup: scales and biases by group, [groups, kBlock], 0 for rows that do not exist.
struct Block {
  const uint8_t* words;
  size_t rowBytes;
  uint32_t count, groupSize;
  const float *scales, *biases;

  // The n ≤ kLanes words from `word` on of the rows of vector v: words[i] has word i of each. Rows that do not exist
  // read the last one.
  MLXTS_INLINE void load_transposed(uint32_t v, uint32_t word, uint32_t n, vu32 (&out)[kLanes]) const {
    for (uint32_t l = 0; l < kLanes; ++l) {
      const uint32_t row = v * kLanes + l;
      const uint8_t* p = words + (row < count ? row : count - 1) * rowBytes + size_t(word) * 4;
      out[l] = n == kLanes ? load_words(p) : load_words(p, n);
    }
    transpose(out);
  }
};

// Tiles of up to `most` rows into which m rows of x are cut.
MLXTS_INLINE uint32_t row_tiles(uint32_t m, uint32_t most) { return (m + most - 1) / most; }

// Rows of x that meet panels of codes lie panel by panel, so that tile after tile reads on where the one before has
// ended: where the columns k0 … k0 + n − 1 of row r of m begin.
MLXTS_INLINE size_t panel_row(uint32_t m, uint32_t k0, uint32_t n, uint32_t r) {
  return size_t(k0) * m + size_t(r) * n;
}
// Columns of the panel that begins at k0.
MLXTS_INLINE uint32_t panel_columns(uint32_t cols, uint32_t k0) {
  return cols - k0 < kCodeDepth ? cols - k0 : kCodeDepth;
}

// Hides from the compiler that p has been read or written before: it would keep what was there, and there are too few
// registers for that.
template <typename T>
MLXTS_INLINE T* anew(T* p) {
  asm("" : "+r"(p));
  return p;
}

// A block of W that will be needed next: it is fetched line by line while products keep the processor busy.
struct Ahead {
  struct Span {
    const uint8_t *next, *end;
  };
  Span spans[3] = {};
  uint32_t lines = 0;  // at a time
  int at = 0;          // the span that is being fetched

  // `bytes` of words and `groupBytes` of scales and of biases from rows row0 on, in so many steps.
  void fetch(const Product& m, uint32_t row0, size_t rowBytes, size_t groupBytes, uint32_t rows, size_t steps) {
    spans[0] = {m.weight + row0 * rowBytes, m.weight + (row0 + rows) * rowBytes};
    spans[1] = {m.scales + row0 * groupBytes, m.scales + (row0 + rows) * groupBytes};
    spans[2] = {m.biases + row0 * groupBytes, m.biases + (row0 + rows) * groupBytes};
    lines = uint32_t(rows * (rowBytes + 2 * groupBytes) / 64 / steps + 1);
  }
  MLXTS_INLINE void step() {
    for (uint32_t left = lines; left > 0 && at < 3;) {
      Span& span = spans[at];
      if (span.next >= span.end) {
        ++at;
        continue;
      }
      __builtin_prefetch(span.next, 0, 2);
      span.next += 64;
      --left;
    }
  }
};

// multiply(r, std::integral_constant<R>) for tiles of R ≤ Most rows of x from row r on, as equal as can be: small
// tiles leave the processor waiting for its own sums.
template <int Most, typename Multiply>
MLXTS_INLINE void for_row_tiles(uint32_t m, Multiply multiply) {
  if (m == 0) return;
  const uint32_t tiles = row_tiles(m, Most), least = m / tiles, larger = m % tiles;
  const auto of_rows = [&]<int R>(std::integral_constant<int, R> rows, uint32_t r, uint32_t end) {
    for (; r < end; r += R) multiply(r, rows);
  };
  const auto tiles_of = [&]<int... Less>(std::integer_sequence<int, Less...>, int rows, uint32_t r, uint32_t end) {
    ((rows == Less + 1 ? of_rows(std::integral_constant<int, Less + 1>(), r, end) : void()), ...);
  };
  constexpr auto sizes = std::make_integer_sequence<int, Most>();
  tiles_of(sizes, int(least) + 1, 0, larger * (least + 1));
  tiles_of(sizes, int(least), larger * (least + 1), m);
}

}  // namespace mlxts
