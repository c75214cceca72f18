// x · W: the rows of W are summed over. One threadgroup: 128 columns against up to 16 rows of x. Each lane keeps the
// columns of one word; sums over 256 rows are added to totals, so that long reductions lose nothing.
#include "product.h"
#include "quantized_matmul_rows.params.h"

using namespace mlxts;

namespace {

constexpr uint32_t kColumns = QUANTIZED_MATMUL_ROWS_TILE_COLS;
constexpr uint32_t kMaxM = QUANTIZED_MATMUL_ROWS_TILE_M;
constexpr uint32_t kSpan = 256;              // rows of W summed in registers
constexpr int kTile = kLanes == 16 ? 2 : 1;  // rows of x in registers

template <int Bits>
inline constexpr int kSums = kPerWord<Bits> + 1;  // of a lane: one for each column of its word, and Σ x·bias

// Rows of W, and the scales of the chunk's groups.
template <typename S>
struct Span {
  const uint8_t* words;
  size_t rowBytes;
  uint32_t count;  // words of the chunk that exist
  const S *scales, *biases;
  uint32_t groups, chunkGroups;
  LaneScales lanes;
};

template <typename S, int Bits, int M>
void sum_rows(const Span<S>& w, const float* x, uint32_t rows, float* totals) {
  constexpr int P = kPerWord<Bits>;
  const Codes<Bits> codes;
  vf32 acc[M][P + 1] = {};
  for (uint32_t r = 0; r < rows; ++r) {
    const uint8_t* p = w.words + r * w.rowBytes;
    const vu32 words = codes.flip(w.count == kLanes ? load_words(p) : load_words(p, w.count));
    const vf32 scale = w.lanes.of_groups(w.scales + size_t(r) * w.groups, w.chunkGroups);
    const vf32 biases = w.lanes.of_groups(w.biases + size_t(r) * w.groups, w.chunkGroups);
    const vf32 bias = fma(splat(kCenter<Bits>), scale, biases);
    vf32 scaled[M];
#pragma GCC unroll 2
    for (int m = 0; m < M; ++m) {
      const vf32 v = splat(x[m * kSpan + r]);
      scaled[m] = v * scale;
      acc[m][P] = fma(v, bias, acc[m][P]);
    }
#pragma GCC unroll 8
    for (int j = 0; j < P; ++j) {
      const vf32 code = codes.at(words, j);
#pragma GCC unroll 2
      for (int m = 0; m < M; ++m) acc[m][j] = fma(code, scaled[m], acc[m][j]);
    }
  }
  for (int m = 0; m < M; ++m)
    for (int j = 0; j <= P; ++j) {
      float* to = totals + (m * (P + 1) + j) * kLanes;
      store(to, load(to) + acc[m][j]);
    }
}

// The sums of `m` rows of x against the columns from c on: totals[row][column of a word, then Σ x·bias][lane].
template <typename S, int Bits>
void sum_chunk(const Types& t, const QuantizedMatmulRowsParams& p, const Product& q, uint32_t m0, uint32_t m,
               uint32_t c, uint32_t columns, float* totals) {
  alignas(64) float x[kMaxM * kSpan];
  const uint32_t groups = p.cols / p.groupSize;
  Span<S> w;
  w.rowBytes = size_t(p.cols) * Bits / 8;
  w.count = columns / kPerWord<Bits>;
  w.groups = groups;
  w.chunkGroups = (columns + p.groupSize - 1) / p.groupSize;
  w.lanes = LaneScales::of<Bits>(p.groupSize);
  for (uint32_t r0 = 0; r0 < p.rows; r0 += kSpan) {
    const uint32_t rows = p.rows - r0 < kSpan ? p.rows - r0 : kSpan;
    for (uint32_t i = 0; i < m; ++i) t.x(q.x + (size_t(m0 + i) * p.rows + r0) * t.xBytes, x + i * kSpan, rows);
    w.words = q.weight + r0 * w.rowBytes + c / kPerWord<Bits> * 4;
    const size_t at = size_t(r0) * groups + c / p.groupSize;
    w.scales = reinterpret_cast<const S*>(q.scales) + at;
    w.biases = reinterpret_cast<const S*>(q.biases) + at;
    uint32_t i = 0;
    const auto totalsOf = [&](uint32_t row) { return totals + row * kSums<Bits> * kLanes; };
    for (; i + kTile <= m; i += kTile) sum_rows<S, Bits, kTile>(w, x + i * kSpan, rows, totalsOf(i));
    for (; i < m; ++i) sum_rows<S, Bits, 1>(w, x + i * kSpan, rows, totalsOf(i));
  }
}

// Adds Σ x·bias and the linear bias to the sums, rounds, and stores them.
template <int Bits>
void store_chunk(const Types& t, const QuantizedMatmulRowsParams& p, const Product& q, uint32_t m0, uint32_t m,
                 uint32_t c, uint32_t columns, const float* totals) {
  constexpr int P = kPerWord<Bits>;
  float bias[kColumns], y[kColumns];
  if (q.widenBias) q.widenBias(q.bias + c * q.biasBytes, bias, columns);
  for (uint32_t i = 0; i < m; ++i) {
    const float* sums = totals + i * kSums<Bits> * kLanes;
    for (uint32_t k = 0; k < columns; ++k) {
      y[k] = sums[k % P * kLanes + k / P] + sums[P * kLanes + k / P];
      if (q.widenBias) y[k] += bias[k];
    }
    t.out(y, q.out + (size_t(m0 + i) * p.cols + c) * t.outBytes, columns);
  }
}

template <typename S, int Bits>
void matmul_rows(const Launch& l, const Types& t) {
  const auto& p = l.args<QuantizedMatmulRowsParams>();
  const uint64_t blocks = l.threadgroups[0], mBlocks = l.threadgroups[1];
  for (uint64_t index = l.begin; index < l.end; ++index) {
    const uint32_t c0 = uint32_t(index % blocks) * kColumns;
    const uint64_t z = index / blocks / mBlocks;
    const uint32_t m0 = uint32_t(index / blocks % mBlocks) * kMaxM;
    const uint32_t m = p.m - m0 < kMaxM ? p.m - m0 : kMaxM;
    const uint32_t end = p.cols - c0 < kColumns ? p.cols : c0 + kColumns;
    const Product q = product_at(l, t, p, Bits, z, false);
    for (uint32_t c = c0; c < end; c += kChunk<Bits>) {
      const uint32_t columns = end - c < uint32_t(kChunk<Bits>) ? end - c : kChunk<Bits>;
      alignas(64) float totals[kMaxM * kSums<Bits> * kLanes] = {};
      sum_chunk<S, Bits>(t, p, q, m0, m, c, columns, totals);
      store_chunk<Bits>(t, p, q, m0, m, c, columns, totals);
    }
  }
}

}  // namespace

#define MATMUL_ROWS(X, S, O, bits)                              \
  MLXTS_KERNEL(quantized_matmul_rows_##X##_##S##_##O##_b##bits, \
               [](const Launch& launch) { matmul_rows<S, bits>(launch, kTypes<X, S, O>); })
MLXTS_PRODUCT_VARIANTS(MATMUL_ROWS)
