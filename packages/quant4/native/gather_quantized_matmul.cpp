// One threadgroup: 64 rows of a matrix against the rows of x of a slot, which that matrix multiplies. Few of them meet
// the codes as they leave the words; for more these are decoded in panels.
#include "gather_quantized_matmul.params.h"
#include "gathered_rows.h"
#include "matvec.h"
#include "panels.h"

using namespace mlxts;

namespace {

using Params = GatherQuantizedMatmulParams;

// Rows of x up to which decoding panels costs more than it saves.
#if defined(__AVX512VNNI__) && !defined(__AMX_INT8__)
constexpr uint32_t kFew = kMaxM;
#else
constexpr uint32_t kFew = 6;
#endif
static_assert(kFew <= kMaxM);

// Blocks of a matrix, and the rows of a slot that they multiply.
struct Part : SlotPart {
  Product product;
};

template <int Bits>
struct Kernel {
  const Launch& l;
  const Types& t;
  const Params& p;
  GatheredOrder<Params> ordered;
  GatherQuantizedMatmulScratch s = scratch_of(l, p);
  PreparedRows& prepared = prepared_in<PreparedRows>(l, s.prepared);

  // Whether there is another part, and that part.
  bool next(SlotParts<Params>& parts, Part& part) const {
    if (!parts.next(part)) return false;
    part.product = product_of(l, t, p, Bits, part.rows.matrix, GATHER_QUANTIZED_MATMUL_OUT);
    return true;
  }

  // `next`, where there is one, is fetched meanwhile.
  void multiply(const Part& part, const Part* next) const {
    const uint32_t rows = uint32_t(part.rows.count), first = uint32_t(part.first), last = uint32_t(part.last);
    for (uint32_t i = 0; i < rows; ++i) {
      const GatheredRow row = ordered.row(part.rows.first + i);
      s.xRows[i] = uint32_t(row.x);
      s.outRows[i] = uint32_t(row.out);
    }
    if (rows <= kFew)
      few(part.product, rows, first, last, next);
    else
      many(part, next);
  }

 private:
  const uint8_t* x_row(uint32_t i) const {
    return l.buffer<const uint8_t>(GATHER_QUANTIZED_MATMUL_X) + size_t(s.xRows[i]) * p.cols * t.xBytes;
  }
  uint8_t* out_row(uint32_t i) const {
    return l.buffer<uint8_t>(GATHER_QUANTIZED_MATMUL_OUT) + size_t(s.outRows[i]) * p.rows * t.outBytes;
  }

  void few(const Product& product, uint32_t rows, uint32_t first, uint32_t last, const Part* next) const {
    OrderedRows x{s.fewOrdered, s.fewSums, p.columnStride, p.groupStride, rows, Form::f32};
    prepare<Bits>(t, p, [&](uint32_t i) { return x_row(i); }, x);
    const uint32_t end = last * kBlock < p.rows ? last * kBlock : p.rows;
    multiply_rows<Bits>(t, p, product, first * kBlock, end, {next ? &next->product : nullptr, 0}, x,
                        [&](uint32_t i) { return out_row(i) + size_t(first) * kBlock * t.outBytes; });
  }

  void many(const Part& part, const Part* next) const {
    const Product& product = part.product;
    const uint32_t rows = uint32_t(part.rows.count);
    // Ranges of threadgroups that share a matrix share its rows of x: at most 2^16 of them.
    const uint64_t wanted = uint64_t(part.rows.first) << 16 | rows;
    const auto prepare = [&](bool scaled) -> const TileRows& {
      return prepared.template prepare<Bits>(wanted, t, p, rows, s, !ordered.order, scaled,
                                             [&](uint32_t i) { return x_row(i); });
    };
    multiply_blocks<Bits>(t, p, rows, product, uint32_t(part.first), uint32_t(part.last),
                          {next ? &next->product : nullptr, 0}, s, prepare, [&](uint32_t i) { return out_row(i); });
  }
};

template <int Bits>
int32_t gather_matmul(const Launch& l, const Types& t) {
  const auto& p = l.args<Params>();
  const GatheredOrder<Params> ordered{
      {p, l.indices(GATHER_QUANTIZED_MATMUL_RHS_INDICES), l.indices(GATHER_QUANTIZED_MATMUL_LHS_INDICES)},
      l.indices(GATHER_QUANTIZED_MATMUL_ORDER),
      l.indices(GATHER_QUANTIZED_MATMUL_OFFSETS)};
  const GatherFaults codes{GATHER_QUANTIZED_MATMUL_FAULT_RHS_INDICES, GATHER_QUANTIZED_MATMUL_FAULT_LHS_INDICES,
                           GATHER_QUANTIZED_MATMUL_FAULT_OFFSETS, GATHER_QUANTIZED_MATMUL_FAULT_ORDER};
  const Kernel<Bits> kernel{l, t, p, ordered};
  if (l.begin == 0 && !ordered.right(l, codes)) return 1;
  SlotParts<Params> parts(l, ordered, p.mBlock);
  Part part, next;
  for (bool more = kernel.next(parts, part); more; part = next) {
    more = kernel.next(parts, next);
    kernel.multiply(part, more ? &next : nullptr);
  }
  return 0;
}

}  // namespace

#define MATMUL(X, S, O, bits)                                     \
  MLXTS_KERNEL(gather_quantized_matmul_##X##_##S##_##O##_b##bits, \
               [](const Launch& launch) { return gather_matmul<bits>(launch, kTypes<X, S, O>); })
MLXTS_PRODUCT_VARIANTS(MATMUL)
