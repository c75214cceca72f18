// The gated unit of products of a few rows of x with rows of two weights.
#pragma once
#include "gated_unit.h"
#include "matvec_rows.h"

namespace mlxts {

// Two weights of n rows of k elements each.
template <typename W>
struct GatedWeights {
  const W *gate, *up;
  size_t n, k;
};

// Columns begin … end − 1 of the m rows of out, from rows of x that are kept `width` apart. The products with `gate` lie
// in out until those with `up` are there, as many columns at a time as `ups` holds for m rows: both weights are long
// streams through memory.
template <typename W, typename E, typename O>
void gated_range(DotRange<W, E> dots, const GatedWeights<W>& w, size_t begin, size_t end, const E* rows, size_t width,
                 size_t m, O* out, O* ups, size_t upColumns) {
  for (size_t first = begin; first < end; first += upColumns) {
    const size_t columns = end - first < upColumns ? end - first : upColumns;
    dots(w.gate, w.k, first, first + columns, rows, width, int(m), DotOutputs{out, w.n, {}, nullptr, nullptr});
    dots(w.up + first * w.k, w.k, 0, columns, rows, width, int(m), DotOutputs{ups, columns, {}, nullptr, nullptr});
    for (size_t i = 0; i < m; ++i) {
      O* gates = out + i * w.n + first;
      gated_units(gates, ups + i * columns, gates, columns);
    }
  }
}

}  // namespace mlxts
