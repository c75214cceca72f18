// One threadgroup: kGroupColumns columns of the products of a slot, which is up to groupRows rows of x with one matrix.
// Few rows meet the matrix as it is; for more it is packed into panels.
#include <algorithm>

#include "gather_matmul.params.h"
#include "matmul_tiles.h"
#include "matvec_rows.h"
#include "product_variants.h"
#include "stacked_weight.h"

using namespace mlxts;

namespace {

static_assert(kPanelRows == GATHER_MATMUL_PANEL_ROWS && kGroupColumns == GATHER_MATMUL_GROUP_COLUMNS &&
              kPieceRows == GATHER_MATMUL_DEPTH);

// Rounds a row of sums to elements `at` … of out.
template <typename O>
void store_row(const float* sums, size_t columns, void* out, size_t at) {
  convert_row(sums, columns, static_cast<O*>(out) + at);
}

// Which rows a slot has, and which matrix.
struct Slots {
  GatheredOrder<GatherMatmulParams> ordered;
  StackedWeight stack;
};

Slots slots_of(const Launch& l, const GatherMatmulParams& p) {
  return {{{p, l.indices(GATHER_MATMUL_RHS_INDICES), l.indices(GATHER_MATMUL_LHS_INDICES)},
           l.indices(GATHER_MATMUL_ORDER),
           l.indices(GATHER_MATMUL_OFFSETS)},
          {size_t(p.n) * p.k, p.matrices, p.startEnd, l.indices(GATHER_MATMUL_STARTS)}};
}

// Whether all index tensors are right.
bool right(const Launch& l, const Slots& slots) {
  const GatherFaults codes{GATHER_MATMUL_FAULT_RHS_INDICES, GATHER_MATMUL_FAULT_LHS_INDICES,
                           GATHER_MATMUL_FAULT_OFFSETS, GATHER_MATMUL_FAULT_ORDER};
  return slots.ordered.right(l, codes) && slots.stack.right(l, GATHER_MATMUL_FAULT_STARTS);
}

// Lists the rows of x and of the output; nobody reads an index again.
void list_rows(const Slots& slots, const GatheredRows& rows, const GatherMatmulScratch& s) {
  for (size_t i = 0; i < rows.count; ++i) {
    const GatheredRow row = slots.ordered.row(rows.first + i);
    s.xRows[i] = uint32_t(row.x);
    s.outRows[i] = uint32_t(row.out);
  }
}

#if defined(__AMX_BF16__)
// A weight of three parts takes so long to split that it pays for many rows of x only.
template <typename W>
inline constexpr size_t kLeastRows = kPartsOf<W> == 3 ? 96 : 1;

// Blocks `first` … `last` − 1 of the columns of the products of `rows` rows of x. Whether tiles hold all numbers.
template <typename X, typename W>
bool multiply_slot(const GatherMatmulParams& p, const GatherMatmulScratch& s, const LeftMatrix<X>& x, size_t rows,
                   const W* weight, size_t first, size_t last, decltype(store_row<float>)* store_row, void* out) {
  static_assert(kLeftRows * kPieceSteps<X, W> * kPartsOf<W> * kAmxRowBytes <= GATHER_MATMUL_LEFT_BYTES);
  const RightRows<X, W> right{reinterpret_cast<bf16*>(s.tiles), rows, p.k};
  if (!right.pack(x)) return false;
  const size_t most = right.columns_together(p.tileColumns);
  for (size_t n0 = first; n0 < last; n0 += most) {
    const size_t columns = std::min(last - n0, most);
    if (!multiply_tiles(right, Weight<W>{weight, p.n, p.k, true}, n0, columns, reinterpret_cast<bf16*>(s.left), s.sums))
      return false;
    for_tile_rows(s.sums, rows, columns, [&](size_t m, size_t some, size_t n, size_t count, const float* sums) {
      for (size_t i = 0; i < some; ++i)
        store_row(sums + i * kGroupColumns, count, out, size_t(s.outRows[m + i]) * p.n + n0 + n);
    });
  }
  return true;
}
#endif

template <typename X, typename W>
int32_t gather_matmul(const Launch& l, DotRange<W, KeptRow<X, W>> dots, decltype(store_row<float>)* store_row) {
  const auto& p = l.args<GatherMatmulParams>();
  const GatherMatmulScratch s = scratch_of(l, p);
  const Slots slots = slots_of(l, p);
  if (l.begin == 0 && !right(l, slots)) return 1;
  using E = KeptRow<X, W>;
  E* kept = reinterpret_cast<E*>(s.x);  // [unpackedRows][width]
  const LeftMatrix<X> x{l.buffer<const X>(GATHER_MATMUL_X), p.k, {s.xRows}};
  const DotOutputs out{l.buffer<void>(GATHER_MATMUL_OUT), p.n, {s.outRows}, {}, {}};
  const size_t n = p.n;
#if defined(__AMX_BF16__)
  const AmxTiles tiles;
#endif
  SlotParts<GatherMatmulParams> parts(l, slots.ordered, p.groupRows);
  for (SlotPart part; parts.next(part);) {
    const auto& [slot, first, last] = part;
    if (!slots.stack.holds(slot.matrix)) continue;
    list_rows(slots, slot, s);
    const W* weight = l.buffer<const W>(GATHER_MATMUL_WEIGHT) + slots.stack.begin(slot.matrix);
    if (slot.count <= p.unpackedRows) {
      for (size_t i = 0; i < slot.count; ++i) keep_row<W>(x.row(i), p.k, p.width, kept + i * p.width);
      dots(weight, p.k, first * kGroupColumns, std::min<size_t>(last * kGroupColumns, n), kept, p.width,
           int(slot.count), out);
      continue;
    }
#if defined(__AMX_BF16__)
    if (p.tileColumns > 0 && slot.count >= kLeastRows<W> &&
        multiply_slot(p, s, x, slot.count, weight, first * kGroupColumns, std::min<size_t>(last * kGroupColumns, n),
                      store_row, out.first))
      continue;
#endif
    for (size_t n0 = first * kGroupColumns; n0 < std::min<size_t>(last * kGroupColumns, n); n0 += kGroupColumns) {
      multiply_columns(x, int(slot.count), Weight<W>{weight, n, p.k, true}, n0, {s.panels, s.converted, s.sums});
      const size_t columns = std::min(n - n0, kGroupColumns);
      for (size_t i = 0; i < slot.count; ++i)
        store_row(s.sums + i * kGroupColumns, columns, out.first, s.outRows[i] * n + n0);
    }
  }
  return 0;
}

}  // namespace

#define MATMUL(x, w, o, X, W, O)                            \
  MLXTS_KERNEL_OF_LEFT(gather_matmul_##x##_##w##_##o, X, W, \
                       gather_matmul<L, W>(launch, dot_range<W, KeptRow<L, W>, O>, store_row<O>))
MLXTS_PRODUCT_VARIANTS(MATMUL)
