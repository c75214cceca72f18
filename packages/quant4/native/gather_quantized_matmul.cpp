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
constexpr uint32_t kFew = 6;
static_assert(kFew <= kMaxM);

// A slot that has rows, and what they are multiplied by. `index` is behind the last slot where there are no more.
struct Slot {
  uint64_t index;
  GatheredRows rows;
  Product product;
};

template <int Bits>
struct Kernel {
  const Launch& l;
  const Types& t;
  const Params& p;
  GatheredOrder<Params> ordered;
  GatherQuantizedMatmulScratch s = scratch_of(l, p);

  // The first slot from `index` on, up to `end`, that has rows.
  Slot slot_from(uint64_t index, uint64_t end) const {
    for (; index < end; ++index) {
      const GatheredRows rows = ordered.rows(index, p.mBlock);
      if (rows.count > 0)
        return {index, rows, product_of(l, t, p, Bits, rows.matrix, GATHER_QUANTIZED_MATMUL_OUT)};
    }
    return {end, {}, {}};
  }

  // The blocks first … last − 1 of the products of a slot.
  void multiply(const Slot& slot, uint32_t first, uint32_t last, const Slot* next) const {
    const uint32_t rows = uint32_t(slot.rows.count);
    for (uint32_t i = 0; i < rows; ++i) {
      const GatheredRow row = ordered.row(slot.rows.first + i);
      s.xRows[i] = uint32_t(row.x);
      s.outRows[i] = uint32_t(row.out);
    }
    if (rows <= kFew)
      few(slot, rows, first, last, next);
    else
      many(slot, rows, first, last, next);
  }

 private:
  const uint8_t* x_row(uint32_t i) const {
    return l.buffer<const uint8_t>(GATHER_QUANTIZED_MATMUL_X) + size_t(s.xRows[i]) * p.cols * t.xBytes;
  }
  uint8_t* out_row(uint32_t i) const {
    return l.buffer<uint8_t>(GATHER_QUANTIZED_MATMUL_OUT) + size_t(s.outRows[i]) * p.rows * t.outBytes;
  }

  void few(const Slot& slot, uint32_t rows, uint32_t first, uint32_t last, const Slot* next) const {
    const struct {
      float *scales, *biases;
    } scratch = {s.fewScales, s.fewBiases};
    OrderedRows x{s.fewOrdered, s.fewSums, p.columnStride, rows, 0};
    prepare<Bits>(t, p, [&](uint32_t i) { return x_row(i); }, x);
    const uint32_t end = last * kBlock < p.rows ? last * kBlock : p.rows;
    for (uint32_t row0 = first * kBlock; row0 < end; row0 += kRows) {
      const BlockAt after = row0 + kRows < end ? BlockAt{&slot.product, row0 + kRows}
                                               : BlockAt{next ? &next->product : nullptr, 0};
      multiply_rows<Bits>(t, p, {&slot.product, row0}, end - row0 < kRows ? end - row0 : kRows, after, x, scratch,
                          [&](uint32_t i) { return out_row(i); });
    }
  }

  void many(const Slot& slot, uint32_t rows, uint32_t first, uint32_t last, const Slot* next) const {
    const TileRows x = prepare_tiles<Bits>(t, p, rows, s, !ordered.order, [&](uint32_t i) { return x_row(i); });
    for (uint32_t block = first; block < last; ++block) {
      const BlockAt after = block + 1 < last ? BlockAt{&slot.product, (block + 1) * kBlock}
                                             : BlockAt{next ? &next->product : nullptr, 0};
      multiply_block<Bits>(t, p, x, rows, {&slot.product, block * kBlock}, after, s,
                           [&](uint32_t i) { return out_row(i); });
    }
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
  if (l.begin == 0 && !ordered.right(l, codes)) return 1;
  const Kernel<Bits> kernel{l, t, p, ordered};
  const uint64_t blocks = l.threadgroups[0], end = (l.end + blocks - 1) / blocks;
  for (Slot slot = kernel.slot_from(l.begin / blocks, end), next; slot.index < end; slot = next) {
    next = kernel.slot_from(slot.index + 1, end);
    // The range's first and last slots may be parts of slots.
    const uint64_t begin = slot.index * blocks, first = begin < l.begin ? l.begin - begin : 0;
    const uint64_t last = l.end - begin < blocks ? l.end - begin : blocks;
    kernel.multiply(slot, uint32_t(first), uint32_t(last), next.index < end ? &next : nullptr);
  }
  return 0;
}

}  // namespace

#define MATMUL(X, S, O, bits)                                     \
  MLXTS_KERNEL(gather_quantized_matmul_##X##_##S##_##O##_b##bits, \
               [](const Launch& launch) { return gather_matmul<bits>(launch, kTypes<X, S, O>); })
MLXTS_PRODUCT_VARIANTS(MATMUL)
