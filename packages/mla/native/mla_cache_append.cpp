// One threadgroup: one token of one sequence. Each thread checks all starts before it writes anything, so that a
// dispatch that fails has written nothing.
#include "cache_rows.h"
#include "mla_cache_append.params.h"
#include "simd.h"

using namespace mlxts;

namespace {

template <typename X, typename C>
void copy(const X* from, C* to, size_t n) {
  if constexpr (std::is_same_v<X, C>) {
    memcpy(to, from, n * sizeof(C));
  } else {
    convert_row(from, n, to);
  }
}

template <typename X, typename C>
int32_t mla_cache_append(const Launch& l) {
  const auto& p = l.args<MlaCacheAppendParams>();
  const X* latent = l.buffer<const X>(MLA_CACHE_APPEND_LATENT);
  const X* k_pe = l.buffer<const X>(MLA_CACHE_APPEND_K_PE);
  const Indices start = l.indices(MLA_CACHE_APPEND_START);
  C* latents = l.buffer<C>(MLA_CACHE_APPEND_LATENT_CACHE);
  C* keys = l.buffer<C>(MLA_CACHE_APPEND_K_PE_CACHE);
  const size_t last = p.capacity - p.tokens;
  if (!starts_right(start, p.counted, p.batch, last, l, MLA_CACHE_APPEND_FAULT_START)) return 1;
  for (uint64_t token = l.begin; token < l.end; ++token) {
    const size_t sequence = token / p.tokens;
    const size_t row = sequence * p.sequenceStride + start_at(start, p.counted, sequence, last) + token % p.tokens;
    copy(latent + token * p.latentDim, latents + row * p.latentStride, p.latentDim);
    copy(k_pe + token * p.rope, keys + row * p.ropeStride, p.rope);
  }
  return 0;
}

}  // namespace

MLXTS_KERNEL(mla_cache_append_f32_f32, mla_cache_append<float, float>)
MLXTS_KERNEL(mla_cache_append_f32_f16, mla_cache_append<float, f16>)
MLXTS_KERNEL(mla_cache_append_f32_bf16, mla_cache_append<float, bf16>)
MLXTS_KERNEL(mla_cache_append_f16_f32, mla_cache_append<f16, float>)
MLXTS_KERNEL(mla_cache_append_f16_f16, mla_cache_append<f16, f16>)
MLXTS_KERNEL(mla_cache_append_f16_bf16, mla_cache_append<f16, bf16>)
MLXTS_KERNEL(mla_cache_append_bf16_f32, mla_cache_append<bf16, float>)
MLXTS_KERNEL(mla_cache_append_bf16_f16, mla_cache_append<bf16, f16>)
MLXTS_KERNEL(mla_cache_append_bf16_bf16, mla_cache_append<bf16, bf16>)
