// The rows of a KV cache [B, Hkv, capacity, D].
#pragma once
#include "cache_rows.h"

namespace mlxts {

// A row of a sequence, counted from the first of the cache.
MLXTS_FUNC uint64_t cache_row(Count sequence, Count kv_head, Count kv_heads, Count capacity, Count row) {
  return (uint64_t(sequence) * kv_heads + kv_head) * capacity + row;
}

}  // namespace mlxts
