// One threadgroup: 64 rows of W against a block of rows of x.
#include "panels.h"

using namespace mlxts;

namespace {

template <int Bits>
void matmul(const Launch& l, const Types& t) {
  const auto& p = l.args<QuantizedMatmulParams>();
  const auto s = scratch_of(l, p);
  const uint64_t blocks = l.threadgroups[0], mBlocks = l.threadgroups[1];
  PreparedRows& prepared = prepared_in<PreparedRows>(l, s.prepared);
  for (uint64_t index = l.begin; index < l.end;) {
    const uint64_t batch = index / blocks, z = batch / mBlocks;
    const uint32_t m0 = uint32_t(batch % mBlocks) * p.mBlock;
    const uint32_t rows = p.m - m0 < p.mBlock ? p.m - m0 : p.mBlock;
    const Product m = product_at(l, t, p, Bits, z, true);
    const auto row_at = [&](uint32_t i) { return m.x + size_t(m0 + i) * p.cols * t.xBytes; };
    const auto prepare = [&](bool scaled) -> const TileRows& {
      return prepared.prepare<Bits>(batch, t, p, rows, s, true, scaled, row_at);
    };
    const uint64_t end = l.end - index < blocks - index % blocks ? l.end : index + blocks - index % blocks;
    const uint32_t first = uint32_t(index % blocks), last = first + uint32_t(end - index);
    multiply_blocks<Bits>(t, p, rows, m, first, last, {nullptr, 0}, s, prepare,
                          [&](uint32_t i) { return m.out + size_t(m0 + i) * p.rows * t.outBytes; });
    index = end;
  }
}

}  // namespace

#define MATMUL(X, S, O, bits)                              \
  MLXTS_KERNEL(quantized_matmul_##X##_##S##_##O##_b##bits, \
               [](const Launch& launch) { matmul<bits>(launch, kTypes<X, S, O>); })
MLXTS_PRODUCT_VARIANTS(MATMUL)
