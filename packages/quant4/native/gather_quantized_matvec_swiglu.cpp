// One threadgroup: 16 rows of the gate and of the up matrix that a pair has chosen against some rows of x (few), and
// the gated unit of their products. Several that follow one another do all rows of gate before those of up: long
// streams through memory.
#include "gate_run.h"
#include "gather_quantized_matvec_swiglu.params.h"
#include "gathered_rows.h"
#include "matvec.h"

using namespace mlxts;

namespace {

// The two products of a pair.
struct GatePair {
  Product gate, up;
};

template <int Bits>
int32_t gather_matvec_swiglu(const Launch& l, const Types& t, GatedUnit gate_run) {
  const auto& p = l.args<GatherQuantizedMatvecSwigluParams>();
  const GatheredPairs<GatherQuantizedMatvecSwigluParams> pairs{p, l.indices(GATHER_QUANTIZED_MATVEC_SWIGLU_RHS_INDICES),
                                                               l.indices(GATHER_QUANTIZED_MATVEC_SWIGLU_LHS_INDICES)};
  const GatherFaults codes{GATHER_QUANTIZED_MATVEC_SWIGLU_FAULT_RHS_INDICES,
                           GATHER_QUANTIZED_MATVEC_SWIGLU_FAULT_LHS_INDICES, 0, 0};
  if (l.begin == 0 && !pairs.right(l, codes)) return 1;
  const auto scratch = scratch_of(l, p);
  PreparedFew& prepared = prepared_in<PreparedFew>(l, scratch.prepared);
  OrderedRows x{scratch.ordered, scratch.sums, p.columnStride, p.groupStride, 0, Form::f32};
  const uint64_t blocks = l.threadgroups[0], mBlocks = l.threadgroups[1];
  const auto products_at = [&](uint64_t row) {
    const uint64_t pair = row / mBlocks, m0 = row % mBlocks * p.mBlock;
    const uint64_t matrix = pairs.matrix(pair);  // read once: both products have the same
    GatePair products{product_of(l, t, p, Bits, matrix, GATHER_QUANTIZED_MATVEC_SWIGLU_OUT, 0),
                      product_of(l, t, p, Bits, matrix, GATHER_QUANTIZED_MATVEC_SWIGLU_OUT, 1)};
    products.gate.out += (pair * p.m + m0) * p.rows * t.outBytes;
    return products;
  };
  GatePair products = products_at(l.begin / blocks), next = products;
  uint8_t *gates = reinterpret_cast<uint8_t*>(scratch.gates), *ups = reinterpret_cast<uint8_t*>(scratch.ups);
  const uint64_t keptBlocks = p.keptRows / kRows;
  for (uint64_t index = l.begin; index < l.end;) {
    const uint64_t row = index / blocks, end = (row + 1) * blocks < l.end ? (row + 1) * blocks : l.end;
    if (end < l.end) next = products_at(row + 1);
    const uint64_t m0 = row % mBlocks * p.mBlock, first = pairs.left(row / mBlocks) * p.m + m0;
    x.m = uint32_t(p.m - m0 < p.mBlock ? p.m - m0 : p.mBlock);
    const Product &gate = products.gate, &up = products.up;
    // Pairs that follow one another may have the same rows of x.
    prepare_once<Bits>(prepared, first, t, p, [&](uint32_t i) { return gate.x + (first + i) * p.cols * t.xBytes; }, x);
    while (index < end) {
      const uint64_t run = end - index < keptBlocks ? end - index : keptBlocks;
      const uint32_t begin = uint32_t(index % blocks) * kRows;
      const uint32_t count = p.rows - begin < run * kRows ? p.rows - begin : uint32_t(run * kRows);
      const auto multiply_run = [&](const Product& product, uint8_t* to, BlockAt after) {
        multiply_rows<Bits>(t, p, product, begin, begin + count, after, x,
                            [&](uint32_t i) { return to + size_t(i) * p.keptRows * t.outBytes; });
      };
      index += run;
      multiply_run(gate, gates, {&up, begin});
      multiply_run(up, ups,
                   index < end ? BlockAt{&gate, begin + count} : BlockAt{end < l.end ? &next.gate : nullptr, 0});
      for (uint32_t i = 0; i < x.m; ++i) {
        const size_t from = size_t(i) * p.keptRows * t.outBytes;
        gate_run(gates + from, ups + from, gate.out + (size_t(i) * p.rows + begin) * t.outBytes, count);
      }
    }
    products = next;
  }
  return 0;
}

}  // namespace

#define MATVEC(X, S, O, bits)                                            \
  MLXTS_KERNEL(gather_quantized_matvec_swiglu_##X##_##S##_##O##_b##bits, \
               [](const Launch& launch) { return gather_matvec_swiglu<bits>(launch, kTypes<X, S, O>, gate_run<O>); })
MLXTS_PRODUCT_VARIANTS(MATVEC)
