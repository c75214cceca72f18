// One threadgroup: one id.
#include "quantized_embedding.params.h"
#include "word.h"

using namespace metal;
using namespace mlxts;

// Reports the first id out of range, at `last`, where it was `wrong`, or before; by one simdgroup.
METAL_FUNC void report_first(device const Index* ids, uint rows, uint wrong, uint last, uint lane,
                             device MlxtsFault* fault) {
  if (!simd_any(lane == 0 && claim_fault(fault))) return;
  for (uint i = 0; i <= last; i += kSimd) {
    const uint t = min(i + lane, last), id = t == last ? wrong : uint(read_index(ids, t));
    const uint first = simd_min(id < rows ? ~0u : t);
    if (first == ~0u) continue;
    if (i + lane == first) write_fault(fault, QUANTIZED_EMBEDDING_FAULT_ID, id, first);
    return;
  }
}

template <typename S, typename O, int Bits>
kernel void quantized_embedding(device const Index* ids [[buffer(QUANTIZED_EMBEDDING_IDS)]],
                                device const uint* weight [[buffer(QUANTIZED_EMBEDDING_WEIGHT)]],
                                device const S* scales [[buffer(QUANTIZED_EMBEDDING_SCALES)]],
                                device const S* biases [[buffer(QUANTIZED_EMBEDDING_BIASES)]],
                                device O* out [[buffer(QUANTIZED_EMBEDDING_OUT)]],
                                constant QuantizedEmbeddingParams& p [[buffer(QUANTIZED_EMBEDDING_PARAMS)]],
                                device MlxtsFault* fault [[buffer(QUANTIZED_EMBEDDING_FAULT)]],
                                uint t [[threadgroup_position_in_grid]], uint index [[thread_position_in_threadgroup]],
                                uint threads [[threads_per_threadgroup]]) {
  const uint row = uint(read_index(ids, t));
  // A negative i32 is a large u32.
  if (row >= p.rows) {
    if (index < kSimd) report_first(ids, p.rows, row, t, index, fault);
    return;
  }
  decode_row<S, O, Bits>(weight, scales, biases, row, out + ulong(t) * p.cols, p.cols, p.groupSize, index, threads);
}

#define EMBEDDING(S, O, bits)                      \
  template                                         \
      [[host_name("quantized_embedding_" #S "_" #O \
                  "_b" #bits)]] [[kernel]] decltype(quantized_embedding<S, O, bits>) quantized_embedding<S, O, bits>;
MLXTS_DECODED(EMBEDDING)
