#include "metal_kernel.h"
#include "mla_split.params.h"

using namespace metal;

// A row of the threadgroup has a head of a token, the row behind the last head has the token's row of kv.
template <typename T>
kernel void mla_split(device const T* q [[buffer(MLA_SPLIT_Q)]], device const T* kv [[buffer(MLA_SPLIT_KV)]],
                      device T* q_nope [[buffer(MLA_SPLIT_Q_NOPE)]], device T* q_pe [[buffer(MLA_SPLIT_Q_PE)]],
                      device T* latent [[buffer(MLA_SPLIT_LATENT)]], device T* k_pe [[buffer(MLA_SPLIT_K_PE)]],
                      constant MlaSplitParams& p [[buffer(MLA_SPLIT_PARAMS)]],
                      uint2 group [[threadgroup_position_in_grid]], uint2 position [[thread_position_in_threadgroup]],
                      uint2 size [[threads_per_threadgroup]]) {
  const uint head = group.y * size.y + position.y;
  if (head > p.heads) return;
  const bool of_kv = head == p.heads;
  const uint first = of_kv ? p.latentDim : p.nope, columns = first + p.rope;
  const ulong row = of_kv ? group.x : ulong(group.x) * p.heads + head;
  device const T* from = (of_kv ? kv : q) + row * columns;        // [columns]
  device T* to_first = (of_kv ? latent : q_nope) + row * first;   // [first]
  device T* to_rope = (of_kv ? k_pe : q_pe) + row * p.rope;       // [rope]
  for (uint i = position.x; i < columns; i += size.x) {
    if (i < first)
      to_first[i] = from[i];
    else
      to_rope[i - first] = from[i];
  }
}

template [[host_name("mla_split_u16")]] [[kernel]] decltype(mla_split<ushort>) mla_split<ushort>;
template [[host_name("mla_split_u32")]] [[kernel]] decltype(mla_split<uint>) mla_split<uint>;
