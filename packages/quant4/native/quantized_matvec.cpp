// One threadgroup: 16 rows of W against all rows of x (few).
#include "matvec.h"

using namespace mlxts;

namespace {

template <int Bits>
void matvec(const Launch& l, const Types& t) {
  const auto& p = l.args<QuantizedMatvecParams>();
  const auto scratch = scratch_of(l, p);
  PreparedFew& prepared = prepared_in<PreparedFew>(l, scratch.prepared);
  OrderedRows x{scratch.ordered, scratch.sums, p.columnStride, p.groupStride, p.m, Form::f32};
  const uint64_t blocks = l.threadgroups[0];
  for (uint64_t index = l.begin; index < l.end;) {
    const uint64_t z = index / blocks, end = (z + 1) * blocks < l.end ? (z + 1) * blocks : l.end;
    const Product product = product_at(l, t, p, Bits, z, true);
    prepare_once<Bits>(prepared, z, t, p, [&](uint32_t i) { return product.x + size_t(i) * p.cols * t.xBytes; }, x);
    const uint32_t row0 = uint32_t(index % blocks) * kRows;
    index = end;
    const uint32_t last = uint32_t((end - 1) % blocks + 1) * kRows;
    multiply_rows<Bits>(t, p, product, row0, last < p.rows ? last : p.rows, {last < p.rows ? &product : nullptr, last},
                        x, [&](uint32_t i) { return product.out + (size_t(i) * p.rows + row0) * t.outBytes; });
  }
}

}  // namespace

namespace mlxts {
template void multiply<4>(WeightRows&, const OrderedRows&, uint32_t, vf32*);
template void multiply<8>(WeightRows&, const OrderedRows&, uint32_t, vf32*);
#if defined(__AVX512VNNI__) && !defined(__AMX_INT8__)
template void multiply_limb_rows<4>(const WeightRows&, const LimbRows&, uint32_t, bool, float*);
template void multiply_limb_rows<8>(const WeightRows&, const LimbRows&, uint32_t, bool, float*);
#endif
#if defined(__AMX_INT8__)
template void multiply_tiles<4>(const WeightRows&, const TileRowsOfX&, uint32_t, bool, float*);
template void multiply_tiles<8>(const WeightRows&, const TileRowsOfX&, uint32_t, bool, float*);
#endif
}  // namespace mlxts

#define MATVEC(X, S, O, bits)                              \
  MLXTS_KERNEL(quantized_matvec_##X##_##S##_##O##_b##bits, \
               [](const Launch& launch) { matvec<bits>(launch, kTypes<X, S, O>); })
MLXTS_PRODUCT_VARIANTS(MATVEC)
