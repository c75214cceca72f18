// One threadgroup: 16 rows of gate and of up against all rows of x (few), and the gated unit of their products. Several
// threadgroups at a time, so that rows of one matrix come from memory one after the other.
#include "gate_run.h"
#include "matvec.h"
#include "quantized_matvec_swiglu.params.h"

using namespace mlxts;

namespace {

constexpr uint32_t kRun = QUANTIZED_MATVEC_SWIGLU_RUN_BLOCKS;

template <int Bits>
void matvec_swiglu(const Launch& l, const Types& t, GatedUnit gate_run) {
  const auto& p = l.args<QuantizedMatvecSwigluParams>();
  const auto scratch = scratch_of(l, p);
  PreparedFew& prepared = prepared_in<PreparedFew>(l, scratch.prepared);
  const Product gate = joint_product(l, 0, QUANTIZED_MATVEC_SWIGLU_OUT);
  const Product up = joint_product(l, 1, QUANTIZED_MATVEC_SWIGLU_OUT);
  OrderedRows x{scratch.ordered, scratch.sums, p.columnStride, p.groupStride, p.m, Form::f32};
  prepare_once<Bits>(prepared, 0, t, p, [&](uint32_t i) { return gate.x + size_t(i) * p.cols * t.xBytes; }, x);
  const size_t width = kRun * kRows * t.outBytes;
  uint8_t *gates = reinterpret_cast<uint8_t*>(scratch.gates), *ups = reinterpret_cast<uint8_t*>(scratch.ups);
  for (uint64_t begin = l.begin; begin < l.end; begin += kRun) {
    const uint32_t first = uint32_t(begin) * kRows,
                   last = uint32_t(l.end - begin < kRun ? l.end : begin + kRun) * kRows;
    const uint32_t end = last < p.rows ? last : p.rows;
    // `after` is what comes after the rows of this run.
    const auto multiply = [&](const Product& part, uint8_t* products, BlockAt after) {
      multiply_rows<Bits>(t, p, part, first, end, after, x, [&](uint32_t i) { return products + i * width; });
    };
    multiply(gate, gates, {&up, first});
    multiply(up, ups, {end < p.rows ? &gate : nullptr, end});
    for (uint32_t i = 0; i < p.m; ++i)
      gate_run(gates + i * width, ups + i * width, gate.out + (size_t(i) * p.rows + first) * t.outBytes, end - first);
  }
}

}  // namespace

#define MATVEC(X, S, O, bits)                                     \
  MLXTS_KERNEL(quantized_matvec_swiglu_##X##_##S##_##O##_b##bits, \
               [](const Launch& launch) { matvec_swiglu<bits>(launch, kTypes<X, S, O>, gate_run<O>); })
MLXTS_PRODUCT_VARIANTS(MATVEC)
