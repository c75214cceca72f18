// One threadgroup: one id.
#include "cpu_kernel.h"
#include "decode.h"
#include "quantized_embedding.params.h"

using namespace mlxts;

namespace {

// The first id out of range, wherever the range that met one began: at `last`, where it was `id`, or before.
int32_t fail_at_first(const Launch& l, const Indices& ids, uint32_t rows, uint32_t id, uint64_t last) {
  for (uint64_t i = 0; i < last; ++i)
    if (const uint32_t other = uint32_t(ids.read(i)); other >= rows)
      return l.fail(QUANTIZED_EMBEDDING_FAULT_ID, other, uint32_t(i));
  return l.fail(QUANTIZED_EMBEDDING_FAULT_ID, id, uint32_t(last));
}

template <typename S, typename O, int Bits>
int32_t quantized_embedding(const Launch& l) {
  const auto& p = l.args<QuantizedEmbeddingParams>();
  const Indices ids = l.indices(QUANTIZED_EMBEDDING_IDS);
  const uint8_t* weight = l.buffer<const uint8_t>(QUANTIZED_EMBEDDING_WEIGHT);
  const S* scales = l.buffer<const S>(QUANTIZED_EMBEDDING_SCALES);
  const S* biases = l.buffer<const S>(QUANTIZED_EMBEDDING_BIASES);
  O* out = l.buffer<O>(QUANTIZED_EMBEDDING_OUT);
  const size_t rowBytes = size_t(p.cols) * Bits / 8, groups = p.cols / p.groupSize;
  for (uint64_t t = l.begin; t < l.end; ++t) {
    // A negative i32 is a large u32.
    const uint32_t id = uint32_t(ids.read(t));
    if (id >= p.rows) return fail_at_first(l, ids, p.rows, id, t);
    const size_t row = id;
    decode_row<S, O, Bits>(weight + row * rowBytes, scales + row * groups, biases + row * groups, out + t * p.cols,
                           p.cols, p.groupSize);
  }
  return 0;
}

}  // namespace

#define EMBEDDING(S, O, bits) MLXTS_KERNEL(quantized_embedding_##S##_##O##_b##bits, quantized_embedding<S, O, bits>)
MLXTS_DECODE_VARIANTS(EMBEDDING)
