// One threadgroup: one id.
#include "cpu_kernel.h"
#include "decode.h"
#include "quantized_embedding.params.h"

using namespace mlxts;

namespace {

// The first id out of range, wherever the range that met one began.
int32_t fail_at_first(const Launch& l, const uint32_t* ids, uint32_t rows) {
  size_t i = 0;
  while (ids[i] < rows) ++i;
  return l.fail(QUANTIZED_EMBEDDING_FAULT_ID, ids[i], uint32_t(i));
}

template <typename S, typename O, int Bits>
int32_t quantized_embedding(const Launch& l) {
  const auto& p = l.args<QuantizedEmbeddingParams>();
  const uint32_t* ids = l.buffer<const uint32_t>(QUANTIZED_EMBEDDING_IDS);
  const uint8_t* weight = l.buffer<const uint8_t>(QUANTIZED_EMBEDDING_WEIGHT);
  const S* scales = l.buffer<const S>(QUANTIZED_EMBEDDING_SCALES);
  const S* biases = l.buffer<const S>(QUANTIZED_EMBEDDING_BIASES);
  O* out = l.buffer<O>(QUANTIZED_EMBEDDING_OUT);
  const size_t rowBytes = size_t(p.cols) * Bits / 8, groups = p.cols / p.groupSize;
  for (uint64_t t = l.begin; t < l.end; ++t) {
    const size_t row = ids[t];
    // A negative i32 is a large u32.
    if (row >= p.rows) return fail_at_first(l, ids, p.rows);
    decode_row<S, O, Bits>(weight + row * rowBytes, scales + row * groups, biases + row * groups, out + t * p.cols,
                           p.cols, p.groupSize);
  }
  return 0;
}

}  // namespace

#define EMBEDDING(S, O, bits) MLXTS_KERNEL(quantized_embedding_##S##_##O##_b##bits, quantized_embedding<S, O, bits>)
MLXTS_DECODE_VARIANTS(EMBEDDING)
