// One threadgroup: one token of one sequence, all heads. Each thread checks all starts before it writes anything, so
// that a dispatch that fails has written nothing.
#include "kv_cache.h"
#include "kv_cache_append.params.h"
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
int32_t kv_cache_append(const Launch& l) {
  const auto& p = l.args<KvCacheAppendParams>();
  const X* k = l.buffer<const X>(KV_CACHE_APPEND_K);
  const X* v = l.buffer<const X>(KV_CACHE_APPEND_V);
  const Indices start = l.indices(KV_CACHE_APPEND_START);
  C* kCache = l.buffer<C>(KV_CACHE_APPEND_K_CACHE);
  C* vCache = l.buffer<C>(KV_CACHE_APPEND_V_CACHE);
  const size_t last = p.capacity - p.tokens;
  if (!starts_right(start, 0, p.batch, last, l, KV_CACHE_APPEND_FAULT_START)) return 1;
  for (uint64_t group = l.begin; group < l.end; ++group) {
    const size_t b = group / p.tokens, t = group % p.tokens;
    const size_t row = start_at(start, 0, b, last) + t;
    for (size_t h = 0; h < p.heads; ++h) {
      const size_t from = (group * p.heads + h) * p.dim;
      const size_t to = cache_row(b, h, p.heads, p.capacity, row) * p.dim;
      copy(k + from, kCache + to, p.dim);
      copy(v + from, vCache + to, p.dim);
    }
  }
  return 0;
}

}  // namespace

MLXTS_KERNEL(kv_cache_append_f32_f32, kv_cache_append<float, float>)
MLXTS_KERNEL(kv_cache_append_f32_f16, kv_cache_append<float, f16>)
MLXTS_KERNEL(kv_cache_append_f32_bf16, kv_cache_append<float, bf16>)
MLXTS_KERNEL(kv_cache_append_f16_f32, kv_cache_append<f16, float>)
MLXTS_KERNEL(kv_cache_append_f16_f16, kv_cache_append<f16, f16>)
MLXTS_KERNEL(kv_cache_append_f16_bf16, kv_cache_append<f16, bf16>)
MLXTS_KERNEL(kv_cache_append_bf16_f32, kv_cache_append<bf16, float>)
MLXTS_KERNEL(kv_cache_append_bf16_f16, kv_cache_append<bf16, f16>)
MLXTS_KERNEL(kv_cache_append_bf16_bf16, kv_cache_append<bf16, bf16>)
