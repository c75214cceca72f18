// One threadgroup: groupRows × 64 outputs. For each piece of the contracted dimension the weight's columns are packed
// into panels, which rows of x then pass through six at a time; sums stay in scratch until the last piece.
#include "cpu_kernel.h"
#include "matmul.params.h"
#include "tile.h"

using namespace mlxts;

namespace {

constexpr size_t kGroupColumns = 64, kDepth = 128;
constexpr int kPanels = kGroupColumns / kTileColumns;

template <typename X, typename W>
inline constexpr bool kPairs = kHasPairs && std::is_same_v<X, bf16> && std::is_same_v<W, bf16>;

// Six rows (or fewer) of x as tiles read them: as they lie where that is possible, else converted into `to`.
template <typename E, typename X>
const void* tile_rows(const X* x, size_t stride, int rows, size_t depth, float* to, size_t& strideBytes) {
  constexpr size_t kPer = sizeof(E) / sizeof(X);
  if ((std::is_same_v<E, X> || std::is_same_v<E, pair>) && depth % kPer == 0) {
    strideBytes = stride * sizeof(X);
    return x;
  }
  strideBytes = kDepth * sizeof(float);
  for (int r = 0; r < rows; ++r, x += stride, to += kDepth) {
    if constexpr (std::is_same_v<E, pair>) {
      memcpy(to, x, depth * sizeof(X));
      memset(reinterpret_cast<X*>(to) + depth, 0, sizeof(X));
    } else {
      for_lanes(
          depth, [&](size_t i) { store(to + i, load(x + i)); },
          [&](size_t i, int n) { store_partial(to + i, load_partial(x + i, n), n); });
    }
  }
  return to - rows * kDepth;
}

template <typename X, typename W, typename O>
void matmul(const Launch& l) {
  const auto& p = l.args<MatmulParams>();
  using E = std::conditional_t<kPairs<X, W>, pair, float>;
  constexpr size_t kPer = std::is_same_v<E, pair> ? 2 : 1;
  const X* x = l.buffer<const X>(MATMUL_X);
  const W* weight = l.buffer<const W>(MATMUL_WEIGHT);
  const void* bias = l.buffer<const void>(MATMUL_BIAS);
  O* out = l.buffer<O>(MATMUL_OUT);
  float* panels = static_cast<float*>(l.scratch);        // [kPanels][kDepth][kTileColumns]
  float* converted = panels + kGroupColumns * kDepth;    // [kTileRows][kDepth]
  float* sums = converted + size_t(kTileRows) * kDepth;  // [groupRows][64]
  const size_t depth = p.k, columns = p.n;
  // Elements of the weight from one contracted element, and from one output column, to the next.
  const size_t step = p.transpose ? 1 : columns, column = p.transpose ? depth : 1;
  for (uint64_t group = l.begin; group < l.end; ++group) {
    const size_t n0 = group % l.threadgroups[0] * kGroupColumns, m0 = group / l.threadgroups[0] * p.groupRows;
    const int width = int(columns - n0 < kGroupColumns ? columns - n0 : kGroupColumns);
    const int rows = int(p.m - m0 < p.groupRows ? p.m - m0 : p.groupRows);
    const int used = (width + kTileColumns - 1) / kTileColumns;
    for (size_t k0 = 0; k0 < depth; k0 += kDepth) {
      const size_t piece = depth - k0 < kDepth ? depth - k0 : kDepth;
      const size_t steps = (piece + kPer - 1) / kPer;
      // What is packed next: the next piece, or the first piece of the next columns.
      const ptrdiff_t ahead = k0 + kDepth < depth ? kDepth * step : kGroupColumns * column - k0 * step;
      for (int j = 0; j < used; ++j) {
        E* panel = reinterpret_cast<E*>(panels + j * kDepth * kTileColumns);
        const size_t n = n0 + j * kTileColumns;
        if (p.transpose)
          pack_transposed(weight + n * depth + k0, depth, width - j * kTileColumns, piece, ahead, panel);
        else
          pack(weight + k0 * columns + n, columns, width - j * kTileColumns, piece, ahead, panel);
      }
      for (int m = 0; m < rows; m += kTileRows) {
        const int some = rows - m < kTileRows ? rows - m : kTileRows;
        size_t stride;
        const void* a = tile_rows<E>(x + (m0 + m) * depth + k0, depth, some, piece, converted, stride);
        for (int j = 0; j < used; ++j)
          run_tile(some, kTileVectors, a, stride, reinterpret_cast<const E*>(panels + j * kDepth * kTileColumns), steps,
                   sums + m * kGroupColumns + j * kTileColumns, kGroupColumns, k0 > 0 ? kAll : nullptr);
      }
    }
    for (int m = 0; m < rows; ++m) {
      const float* from = sums + m * kGroupColumns;
      O* to = out + (m0 + m) * columns + n0;
      const auto finish = [&](size_t i, auto get) {
        if (!bias) return get(from + i);
        return p.biasF32 ? get(from + i) + get(static_cast<const float*>(bias) + n0 + i)
                         : get(from + i) + get(static_cast<const X*>(bias) + n0 + i);
      };
      for_lanes(
          width, [&](size_t i) { store(to + i, finish(i, [](auto* at) { return load(at); })); },
          [&](size_t i, int n) { store_partial(to + i, finish(i, [n](auto* at) { return load_partial(at, n); }), n); });
    }
  }
}

}  // namespace

#define MATMUL_OUTPUTS(x, w, X, W)                          \
  MLXTS_KERNEL(matmul_##x##_##w##_f32, matmul<X, W, float>) \
  MLXTS_KERNEL(matmul_##x##_##w##_f16, matmul<X, W, f16>)   \
  MLXTS_KERNEL(matmul_##x##_##w##_bf16, matmul<X, W, bf16>)
#define MATMUL_WEIGHTS(x, X)       \
  MATMUL_OUTPUTS(x, f32, X, float) \
  MATMUL_OUTPUTS(x, f16, X, f16)   \
  MATMUL_OUTPUTS(x, bf16, X, bf16)
MATMUL_WEIGHTS(f32, float)
MATMUL_WEIGHTS(f16, f16)
MATMUL_WEIGHTS(bf16, bf16)
