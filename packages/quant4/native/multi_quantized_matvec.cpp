// One threadgroup: 16 rows of one of the matrices against all rows of x (few).
#include "matvec.h"
#include "multi_quantized_matvec.params.h"

using namespace mlxts;

namespace {

struct Part {
  Product product;
  uint32_t rows;  // 0: there is no such matrix
};

template <int Bits>
void multi_matvec(const Launch& l, const Types& t) {
  const auto& p = l.args<MultiQuantizedMatvecParams>();
  const auto scratch = scratch_of(l, p);
  PreparedFew& prepared = prepared_in<PreparedFew>(l, scratch.prepared);
  const Part parts[] = {{joint_product(l, 0, MULTI_QUANTIZED_MATVEC_OUT_A), p.rowsA},
                        {joint_product(l, 1, MULTI_QUANTIZED_MATVEC_OUT_B), p.rowsB},
                        {joint_product(l, 2, MULTI_QUANTIZED_MATVEC_OUT_C), p.rowsC},
                        {joint_product(l, 3, MULTI_QUANTIZED_MATVEC_OUT_D), p.rowsD},
                        {{}, 0}};
  OrderedRows x{scratch.ordered, scratch.sums, p.columnStride, p.groupStride, p.m, Form::f32};
  prepare_once<Bits>(
      prepared, 0, t, p, [&](uint32_t i) { return parts[0].product.x + size_t(i) * p.cols * t.xBytes; }, x);
  uint64_t first = 0;  // the part's first threadgroup
  for (const Part* part = parts; part->rows > 0; ++part) {
    const auto& [product, rows] = *part;
    const uint64_t blocks = (rows + kRows - 1) / kRows;
    const uint64_t begin = l.begin > first ? l.begin : first, end = l.end < first + blocks ? l.end : first + blocks;
    if (begin < end) {
      const uint32_t row0 = uint32_t(begin - first) * kRows, last = uint32_t(end - first) * kRows;
      multiply_rows<Bits>(t, p, product, row0, last < rows ? last : rows, {end < l.end ? &part[1].product : nullptr, 0},
                          x, [&](uint32_t i) { return product.out + (size_t(i) * rows + row0) * t.outBytes; });
    }
    first += blocks;
  }
}

}  // namespace

#define MATVEC(X, S, O, bits)                                    \
  MLXTS_KERNEL(multi_quantized_matvec_##X##_##S##_##O##_b##bits, \
               [](const Launch& launch) { multi_matvec<bits>(launch, kTypes<X, S, O>); })
MLXTS_PRODUCT_VARIANTS(MATVEC)
