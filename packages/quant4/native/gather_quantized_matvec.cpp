// One threadgroup: 16 rows of the matrix that a pair has chosen against some rows of x (few).
#include "gather_quantized_matvec.params.h"
#include "gathered_rows.h"
#include "matvec.h"

using namespace mlxts;

namespace {

template <int Bits>
int32_t gather_matvec(const Launch& l, const Types& t) {
  const auto& p = l.args<GatherQuantizedMatvecParams>();
  const GatheredPairs<GatherQuantizedMatvecParams> pairs{p, l.indices(GATHER_QUANTIZED_MATVEC_RHS_INDICES),
                                                         l.indices(GATHER_QUANTIZED_MATVEC_LHS_INDICES)};
  const GatherFaults codes{GATHER_QUANTIZED_MATVEC_FAULT_RHS_INDICES, GATHER_QUANTIZED_MATVEC_FAULT_LHS_INDICES, 0, 0};
  if (l.begin == 0 && !pairs.right(l, codes)) return 1;
  const auto scratch = scratch_of(l, p);
  PreparedFew& prepared = prepared_in<PreparedFew>(l, scratch.prepared);
  OrderedRows x{scratch.ordered, scratch.sums, p.columnStride, p.groupStride, 0, Form::f32};
  const uint64_t blocks = l.threadgroups[0], mBlocks = l.threadgroups[1];
  const auto product_at = [&](uint64_t row) {
    const uint64_t pair = row / mBlocks, m0 = row % mBlocks * p.mBlock;
    Product product = product_of(l, t, p, Bits, pairs.matrix(pair), GATHER_QUANTIZED_MATVEC_OUT);
    product.out += (pair * p.m + m0) * p.rows * t.outBytes;
    return product;
  };
  Product product = product_at(l.begin / blocks), next = product;
  for (uint64_t index = l.begin; index < l.end;) {
    const uint64_t row = index / blocks, end = (row + 1) * blocks < l.end ? (row + 1) * blocks : l.end;
    if (end < l.end) next = product_at(row + 1);
    const uint64_t m0 = row % mBlocks * p.mBlock, first = pairs.left(row / mBlocks) * p.m + m0;
    x.m = uint32_t(p.m - m0 < p.mBlock ? p.m - m0 : p.mBlock);
    // Pairs that follow one another may have the same rows of x.
    prepare_once<Bits>(
        prepared, first, t, p, [&](uint32_t i) { return product.x + (first + i) * p.cols * t.xBytes; }, x);
    const uint32_t row0 = uint32_t(index % blocks) * kRows, last = uint32_t((end - 1) % blocks + 1) * kRows;
    index = end;
    multiply_rows<Bits>(t, p, product, row0, last < p.rows ? last : p.rows, {end < l.end ? &next : nullptr, 0}, x,
                        [&](uint32_t i) { return product.out + (size_t(i) * p.rows + row0) * t.outBytes; });
    product = next;
  }
  return 0;
}

}  // namespace

#define MATVEC(X, S, O, bits)                                     \
  MLXTS_KERNEL(gather_quantized_matvec_##X##_##S##_##O##_b##bits, \
               [](const Launch& launch) { return gather_matvec<bits>(launch, kTypes<X, S, O>); })
MLXTS_PRODUCT_VARIANTS(MATVEC)
