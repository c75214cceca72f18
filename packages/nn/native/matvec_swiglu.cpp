// One threadgroup: groupColumns rows of both weights against all rows of x, and the gated unit of their products.
// The products with `gate` lie in out until then.
#include "cpu_kernel.h"
#include "matvec_rows.h"
#include "matvec_swiglu.params.h"
#include "product_variants.h"
#include "simd.h"

using namespace mlxts;

namespace {

// gates[i] = silu(gates[i]) · ups[i]
template <typename O>
void gate_products(O* gates, const O* ups, size_t count) {
  for_lanes(
      count, [&](size_t i) { store(gates + i, times_sigmoid(load(gates + i), load(ups + i), load(gates + i))); },
      [&](size_t i, int n) {
        const vf32 gate = load_partial(gates + i, n);
        store_partial(gates + i, times_sigmoid(gate, load_partial(ups + i, n), gate), n);
      });
}

template <typename X, typename W, typename O>
void matvec_swiglu(const Launch& l, DotRange<W, KeptRow<X, W>> dots) {
  const auto& p = l.args<MatvecSwigluParams>();
  using E = KeptRow<X, W>;
  const X* x = l.buffer<const X>(MATVEC_SWIGLU_X);
  const auto scratch = scratch_of(l, p);
  E* rows = reinterpret_cast<E*>(scratch.x);  // [m][width]
  for (size_t m = 0; m < p.m; ++m) keep_row<W>(x + m * p.k, p.k, p.width, rows + m * p.width);
  O* out = l.buffer<O>(MATVEC_SWIGLU_OUT);
  O* ups = reinterpret_cast<O*>(scratch.ups);  // [m][columns]
  const size_t begin = l.begin * p.groupColumns, end = l.end * p.groupColumns < p.n ? l.end * p.groupColumns : p.n;
  // As many columns at a time as the scratch holds: both weights are long streams through memory.
  for (size_t first = begin; first < end; first += p.upColumns) {
    const size_t columns = end - first < p.upColumns ? end - first : p.upColumns;
    dots(l.buffer<const W>(MATVEC_SWIGLU_GATE), p.k, first, first + columns, rows, p.width, int(p.m),
         DotOutputs{out, p.n, {}, nullptr, nullptr});
    dots(l.buffer<const W>(MATVEC_SWIGLU_UP) + first * p.k, p.k, 0, columns, rows, p.width, int(p.m),
         DotOutputs{ups, columns, {}, nullptr, nullptr});
    for (size_t m = 0; m < p.m; ++m) gate_products(out + m * p.n + first, ups + m * columns, columns);
  }
}

}  // namespace

#define MATVEC_SWIGLU(x, w, o, X, W, O)       \
  MLXTS_KERNEL(matvec_swiglu_##x##_##w##_##o, \
               [](const Launch& launch) { matvec_swiglu<X, W, O>(launch, dot_range<W, KeptRow<X, W>, O>); })
MLXTS_PRODUCT_VARIANTS(MATVEC_SWIGLU)
