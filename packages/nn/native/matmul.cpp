// One threadgroup: groupRows × kGroupColumns outputs, whose sums stay in scratch while the contracted dimension goes
// by.
#include "cpu_kernel.h"
#include "matmul.params.h"
#include "matmul_panels.h"
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

template <typename X, typename W>
void matmul(const Launch& l, decltype(store_rows<X, float>)* store) {
  const auto& p = l.args<MatmulParams>();
  const X* x = l.buffer<const X>(MATMUL_X);
  const Weight<W> weight{l.buffer<const W>(MATMUL_WEIGHT), p.n, p.k, p.transpose != 0};
  const auto scratch = scratch_of(l, p);
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
}  // namespace mlxts

#define MATMUL(x, w, o, X, W, O) \
  MLXTS_KERNEL(matmul_##x##_##w##_##o, [](const Launch& launch) { matmul<X, W>(launch, store_rows<X, O>); })
MLXTS_PRODUCT_VARIANTS(MATMUL)
