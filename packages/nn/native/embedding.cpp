// One threadgroup: one token. A negative i32 id is a large u32 id: one comparison refuses both.
#include "cpu_kernel.h"
#include "embedding.params.h"
#include "simd.h"

using namespace mlxts;

namespace {

template <typename W, typename T>
int32_t embedding(const Launch& l) {
  const auto& p = l.args<EmbeddingParams>();
  const Indices ids = l.indices(EMBEDDING_IDS);
  for (uint64_t token = l.begin; token < l.end; ++token) {
    const uint32_t id = uint32_t(ids.read(token));
    if (id >= p.vocabulary) return l.fail(EMBEDDING_FAULT_ID, id, uint32_t(token));
    const W* from = l.buffer<const W>(EMBEDDING_WEIGHT) + uint64_t(id) * p.dim;
    T* to = l.buffer<T>(EMBEDDING_OUT) + token * p.dim;
    if constexpr (std::is_same_v<W, T>)
      memcpy(to, from, p.dim * sizeof(T));
    else
      convert_row(from, p.dim, to);
  }
  return 0;
}

}  // namespace

MLXTS_KERNEL(embedding_f32_f32, embedding<float, float>)
MLXTS_KERNEL(embedding_f32_f16, embedding<float, f16>)
MLXTS_KERNEL(embedding_f32_bf16, embedding<float, bf16>)
MLXTS_KERNEL(embedding_f16_f32, embedding<f16, float>)
MLXTS_KERNEL(embedding_f16_f16, embedding<f16, f16>)
MLXTS_KERNEL(embedding_f16_bf16, embedding<f16, bf16>)
MLXTS_KERNEL(embedding_bf16_f32, embedding<bf16, float>)
MLXTS_KERNEL(embedding_bf16_f16, embedding<bf16, f16>)
MLXTS_KERNEL(embedding_bf16_bf16, embedding<bf16, bf16>)
