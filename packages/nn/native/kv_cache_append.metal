#include "kv_cache.h"
#include "kv_cache_append.params.h"
#include "metal_convert.h"

using namespace metal;
using namespace mlxts;

// A threadgroup copies some heads of one token. Each simdgroup checks all starts before it writes anything, so that a
// dispatch that fails has written nothing. It reads them before it waits for k and v.
template <typename X, typename C>
kernel void kv_cache_append(device const X* k [[buffer(KV_CACHE_APPEND_K)]],
                            device const X* v [[buffer(KV_CACHE_APPEND_V)]],
                            device const Index* start [[buffer(KV_CACHE_APPEND_START)]],
                            device C* kCache [[buffer(KV_CACHE_APPEND_K_CACHE)]],
                            device C* vCache [[buffer(KV_CACHE_APPEND_V_CACHE)]],
                            constant KvCacheAppendParams& p [[buffer(KV_CACHE_APPEND_PARAMS)]],
                            device MlxtsFault* fault [[buffer(KV_CACHE_APPEND_FAULT)]],
                            uint3 group [[threadgroup_position_in_grid]],
                            uint3 position [[thread_position_in_threadgroup]], uint3 size [[threads_per_threadgroup]],
                            uint lane [[thread_index_in_simdgroup]]) {
  const uint last = p.capacity - p.tokens;
  const Indices starts = {start, true};
  const FaultSearch search = {fault, lane};
  const uint t = group.x, b = group.y, h = group.z * size.y + position.y;
  const WrongNumber wrong = wrong_start(starts, 0, p.batch, last, search);
  const uint first = start_at(starts, 0, b, last);
  wait_for_kernels();
  if (!search.none(wrong.place, KV_CACHE_APPEND_FAULT_START, wrong.number, wrong.place)) return;
  if (h >= p.heads) return;
  const ulong from = ((ulong(b) * p.tokens + t) * p.heads + h) * p.dim;
  const ulong to = cache_row(b, h, p.heads, p.capacity, first + t) * p.dim;
  k += from, v += from, kCache += to, vCache += to;
  for (uint i = 4 * position.x; i < p.dim; i += 4 * size.x) {
    if (i + 4 <= p.dim) {
      const vec<X, 4> key = four_of(k + i), value = four_of(v + i);
      store_four(kCache + i, converted<C>(key));
      store_four(vCache + i, converted<C>(value));
    } else {
      convert_four(k, kCache, i, p.dim);
      convert_four(v, vCache, i, p.dim);
    }
  }
}

#define KV_CACHE_APPEND(name, X, C) \
  template [[host_name("kv_cache_append_" name)]] [[kernel]] decltype(kv_cache_append<X, C>) kv_cache_append<X, C>;
KV_CACHE_APPEND("f32_f32", float, float)
KV_CACHE_APPEND("f32_f16", float, half)
KV_CACHE_APPEND("f32_bf16", float, bfloat)
KV_CACHE_APPEND("f16_f32", half, float)
KV_CACHE_APPEND("f16_f16", half, half)
KV_CACHE_APPEND("f16_bf16", half, bfloat)
KV_CACHE_APPEND("bf16_f32", bfloat, float)
KV_CACHE_APPEND("bf16_f16", bfloat, half)
KV_CACHE_APPEND("bf16_bf16", bfloat, bfloat)
