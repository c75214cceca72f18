// Generated from the declaration of kv_cache_append; `npm run gen` rewrites it.
#pragma once
#ifdef __METAL_VERSION__
#include <metal_stdlib>
#else
#include <stdint.h>
#endif

#define KV_CACHE_APPEND_K 0  // read
#define KV_CACHE_APPEND_V 1  // read
#define KV_CACHE_APPEND_START 2  // read
#define KV_CACHE_APPEND_K_CACHE 3  // readWrite
#define KV_CACHE_APPEND_V_CACHE 4  // readWrite
#define KV_CACHE_APPEND_PARAMS 5
#define KV_CACHE_APPEND_FAULT 6
#define KV_CACHE_APPEND_FAULT_START 1

struct KvCacheAppendParams {
  uint32_t batch;
  uint32_t tokens;
  uint32_t heads;
  uint32_t dim;
  uint32_t capacity;
};
static_assert(sizeof(KvCacheAppendParams) == 20, "KvCacheAppendParams must match the declaration of kv_cache_append");
