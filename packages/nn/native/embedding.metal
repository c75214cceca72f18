#include "embedding.params.h"
#include "metal_convert.h"

using namespace metal;
using namespace mlxts;

// Reports the first id out of range: one before position `last`, or `wrong`, which was read there.
METAL_FUNC void report_first(device const Index* ids, uint vocabulary, uint wrong, uint last,
                             device MlxtsFault* fault) {
  if (!claim_fault(fault)) return;
  uint first = 0, id = wrong;
  while (first < last && (id = uint(read_index(ids, first))) < vocabulary) ++first;
  write_fault(fault, EMBEDDING_FAULT_ID, first < last ? id : wrong, first);
}

// A row of threadgroups copies the row of one token. A negative i32 id is a large u32 id: one comparison refuses both.
template <typename W, typename T>
kernel void embedding(device const Index* ids [[buffer(EMBEDDING_IDS)]],
                      device const W* weight [[buffer(EMBEDDING_WEIGHT)]], device T* out [[buffer(EMBEDDING_OUT)]],
                      constant EmbeddingParams& p [[buffer(EMBEDDING_PARAMS)]],
                      device MlxtsFault* fault [[buffer(EMBEDDING_FAULT)]],
                      uint2 group [[threadgroup_position_in_grid]], uint2 position [[thread_position_in_threadgroup]],
                      uint2 size [[threads_per_threadgroup]]) {
  const uint token = group.x, id = uint(read_index(ids, token));
  if (id >= p.vocabulary) {
    if (position.x == 0) report_first(ids, p.vocabulary, id, token, fault);
    return;
  }
  const uint i = 4 * (group.y * size.x + position.x);
  convert_four(weight + ulong(id) * p.dim, out + ulong(token) * p.dim, i, p.dim);
}

#define EMBEDDING(name, W, T) \
  template [[host_name("embedding_" name)]] [[kernel]] decltype(embedding<W, T>) embedding<W, T>;
EMBEDDING("f32_f32", float, float)
EMBEDDING("f32_f16", float, half)
EMBEDDING("f32_bf16", float, bfloat)
EMBEDDING("f16_f32", half, float)
EMBEDDING("f16_f16", half, half)
EMBEDDING("f16_bf16", half, bfloat)
EMBEDDING("bf16_f32", bfloat, float)
EMBEDDING("bf16_f16", bfloat, half)
EMBEDDING("bf16_bf16", bfloat, bfloat)
