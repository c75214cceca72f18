// One threadgroup: groupRows × kGroupColumns outputs, whose sums stay in scratch while the contracted dimension goes
// by.
#include <algorithm>

#include "cpu_kernel.h"
#include "matmul.params.h"
#include "matmul_tiles.h"
#include "product_variants.h"

using namespace mlxts;

namespace {

static_assert(kPanelRows == MATMUL_PANEL_ROWS && kGroupColumns == MATMUL_GROUP_COLUMNS && kPieceRows == MATMUL_DEPTH);

// Rounds sums, with the bias added, to rows of out.
template <typename X, typename O>
void store_rows(const MatmulParams& p, const float* sums, const void* bias, size_t n0, int columns, size_t m0, int rows,
                void* out) {
  for (int m = 0; m < rows; ++m, sums += kGroupColumns) {
    O* to = static_cast<O*>(out) + (m0 + m) * p.n + n0;
    const auto finish = [&](size_t i, auto get) {
      if (!bias) return get(sums + i);
      return p.biasF32 ? get(sums + i) + get(static_cast<const float*>(bias) + n0 + i)
                       : get(sums + i) + get(static_cast<const X*>(bias) + n0 + i);
    };
    for_lanes(
        columns, [&](size_t i) { store(to + i, finish(i, [](auto* at) { return load(at); })); },
        [&](size_t i, int n) { store_partial(to + i, finish(i, [n](auto* at) { return load_partial(at, n); }), n); });
  }
}

template <typename X>
using Store = decltype(store_rows<X, float>)*;

#if defined(__AMX_BF16__)
// What a thread has packed last: the rows of x from m0 on, and whether tiles hold them.
struct PackedRows {
  uint32_t m0, fit;
};
static_assert(sizeof(PackedRows) == 4 * MATMUL_PACKED_WORDS);

// Threadgroups of the same rows are multiplied together, up to p.tileColumns columns.
template <typename X, typename W>
void multiply_groups(const Launch& l, const Weight<W>& weight, Store<X> store) {
  const auto& p = l.args<MatmulParams>();
  const auto scratch = scratch_of(l, p);
  static_assert(kLeftRows * kPieceSteps<X, W> * kPartsOf<W> * kAmxRowBytes <= MATMUL_LEFT_BYTES);
  const AmxTiles tiles;
  PackedRows& packed = *reinterpret_cast<PackedRows*>(scratch.packed);
  if (!l.scratchKept) packed.m0 = ~0u;
  for (uint64_t group = l.begin; group < l.end;) {
    const uint32_t row = uint32_t(group / l.threadgroups[0]), first = uint32_t(group % l.threadgroups[0]);
    const size_t m0 = size_t(row) * p.groupRows, rows = p.m - m0 < p.groupRows ? p.m - m0 : p.groupRows;
    const uint64_t together = std::min<uint64_t>(l.end - group, l.threadgroups[0] - first);
    const LeftMatrix<X> x{l.buffer<const X>(MATMUL_X) + m0 * p.k, p.k, {}};
    const RightRows<X, W> right{reinterpret_cast<bf16*>(scratch.tiles), rows, p.k};
    if (packed.m0 != row) packed = {row, right.pack(x)};
    const size_t end = std::min<size_t>(p.n, (first + together) * kGroupColumns);
    const size_t most = right.columns_together(p.tileColumns);
    for (size_t n0 = first * kGroupColumns; n0 < end; n0 += most) {
      const size_t columns = std::min(end - n0, most);
      const auto finish = [&](size_t m, size_t some, size_t n, size_t count, const float* sums) {
        store(p, sums, l.buffer<const void>(MATMUL_BIAS), n0 + n, int(count), m0 + m, int(some),
              l.buffer<void>(MATMUL_OUT));
      };
      bf16* left = reinterpret_cast<bf16*>(scratch.left);
      if (packed.fit && multiply_tiles(right, weight, n0, columns, left, scratch.sums)) {
        for_tile_rows(scratch.sums, rows, columns, finish);
        continue;
      }
      for (size_t n = 0; n < columns; n += kGroupColumns) {
        multiply_columns(x, int(rows), weight, n0 + n, {scratch.panels, scratch.converted, scratch.sums});
        finish(0, rows, n, std::min(columns - n, kGroupColumns), scratch.sums);
      }
    }
    group += together;
  }
}
#endif

template <typename X, typename W>
void matmul(const Launch& l, Store<X> store) {
  const auto& p = l.args<MatmulParams>();
  const X* x = l.buffer<const X>(MATMUL_X);
  const Weight<W> weight{l.buffer<const W>(MATMUL_WEIGHT), p.n, p.k, p.transpose != 0};
  const auto scratch = scratch_of(l, p);
#if defined(__AMX_BF16__)
  if (p.tileColumns > 0) return multiply_groups<X, W>(l, weight, store);
#endif
  for (uint64_t group = l.begin; group < l.end; ++group) {
    const size_t n0 = group % l.threadgroups[0] * kGroupColumns, m0 = group / l.threadgroups[0] * p.groupRows;
    const int columns = int(p.n - n0 < kGroupColumns ? p.n - n0 : kGroupColumns);
    const int rows = int(p.m - m0 < p.groupRows ? p.m - m0 : p.groupRows);
    multiply_columns(LeftMatrix<X>{x + m0 * p.k, p.k, {}}, rows, weight, n0,
                     {scratch.panels, scratch.converted, scratch.sums});
    store(p, scratch.sums, l.buffer<const void>(MATMUL_BIAS), n0, columns, m0, rows, l.buffer<void>(MATMUL_OUT));
  }
}

}  // namespace

namespace mlxts {
MLXTS_MULTIPLY_COLUMNS(float, float);
MLXTS_MULTIPLY_COLUMNS(float, f16);
MLXTS_MULTIPLY_COLUMNS(float, bf16);
MLXTS_MULTIPLY_COLUMNS(f16, float);
MLXTS_MULTIPLY_COLUMNS(f16, f16);
MLXTS_MULTIPLY_COLUMNS(f16, bf16);
MLXTS_MULTIPLY_COLUMNS(bf16, float);
MLXTS_MULTIPLY_COLUMNS(bf16, f16);
MLXTS_MULTIPLY_COLUMNS(bf16, bf16);
#if MLXTS_FAST_BF16_DOT
MLXTS_MULTIPLY_COLUMNS(widened_bf16, bf16);
#endif
}  // namespace mlxts

#define MATMUL(x, w, o, X, W, O) \
  MLXTS_KERNEL_OF_LEFT(matmul_##x##_##w##_##o, X, W, matmul<L, W>(launch, store_rows<L, O>))
MLXTS_PRODUCT_VARIANTS(MATMUL)
