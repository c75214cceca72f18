// One threadgroup: one row.
#include "cpu_kernel.h"
#include "decode.h"
#include "dequantize.params.h"

using namespace mlxts;

namespace {

template <typename S, typename O, int Bits>
void dequantize(const Launch& l) {
  const auto& p = l.args<DequantizeParams>();
  const uint8_t* weight = l.buffer<const uint8_t>(DEQUANTIZE_WEIGHT);
  const S* scales = l.buffer<const S>(DEQUANTIZE_SCALES);
  const S* biases = l.buffer<const S>(DEQUANTIZE_BIASES);
  O* out = l.buffer<O>(DEQUANTIZE_OUT);
  const size_t rowBytes = size_t(p.cols) * Bits / 8, groups = p.cols / p.groupSize;
  for (uint64_t row = l.begin; row < l.end; ++row)
    decode_row<S, O, Bits>(weight + row * rowBytes, scales + row * groups, biases + row * groups, out + row * p.cols,
                           p.cols, p.groupSize);
}

}  // namespace

#define DEQUANTIZE(S, O, bits) MLXTS_KERNEL(dequantize_##S##_##O##_b##bits, dequantize<S, O, bits>)
MLXTS_DECODE_VARIANTS(DEQUANTIZE)
