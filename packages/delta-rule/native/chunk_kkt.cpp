// One threadgroup: A of one chunk of one head, A_ij = (β_i k_i · k_j) exp(G_i − G_j) below the diagonal, else 0.
#include "chunk_channels.h"
#include "chunk_kkt.params.h"

using namespace mlxts;

namespace {

// One gate a head: the rows of `keys` are multiplied by their beta.
template <typename T>
void head_kkt(const ChunkKktParams& p, ChunkKktScratch scratch, size_t n, CumulativeGateTensors gates, float* A) {
  const size_t K = p.keyDim, BT = p.chunkLength, stride = p.keyStride;
  const CumulativeGates G{scratch.cumulativeGateHigh, scratch.cumulativeGateLow};
  G.read(gates, n, BT);
  transpose_padded({scratch.keys, stride}, n, K, scratch.transposedKeys, BT);
  scale_rows<T>(n, K, scratch.betas, scratch.keys, stride, scratch.keys, stride);
  decayed_kkt(n, BT, G, A, p.heads * BT, [&](auto& tile) {
    tile.accumulate(scratch.keys + tile.row * stride, stride, 1, scratch.transposedKeys + tile.column, BT, K);
  });
}

// A gate for each channel: A_ij = Σ_c β_i k_ic k_jc exp(G_ic − G_jc).
template <typename T>
void channel_kkt(const ChunkKktParams& p, ChannelRows rows, ChunkKktScratch scratch, size_t n, CumulativeGateTensors G,
                 float* A) {
  scale_rows<T>(n, rows.K, scratch.betas, rows.keys, rows.stride, scratch.weightedKeys, rows.stride);
  steps_of(rows, n, G);
  channel_products<T>(n, rows, ChannelProduct<false>{scratch.weightedKeys, A, p.heads * rows.BT});
}

// kChannels: G has a gate for each channel of k.
template <typename T, bool kChannels>
int32_t chunk_kkt(const Launch& l) {
  const auto& p = l.args<ChunkKktParams>();
  const Indices cu_seqlens = l.indices(CHUNK_KKT_CU_SEQLENS);
  if (!packed_right(cu_seqlens, p.sequences, p.tokens, l, CHUNK_KKT_FAULT_CU_SEQLENS)) return 1;
  const size_t K = p.keyDim, H = p.heads, BT = p.chunkLength, stride = p.keyStride, gates = kChannels ? K : 1;
  const CumulativeGateTensors G{l.buffer<const float>(CHUNK_KKT_CUMULATIVE_GATE),
                                l.buffer<const float>(CHUNK_KKT_CUMULATIVE_GATE_LOW), H * gates};
  const auto scratch = scratch_of(l, p);
  const ChannelRows rows{scratch.keys, scratch.steps, scratch.transposedKeys, K, BT, stride};
  if constexpr (kChannels) clear_beyond(rows, {scratch.weightedKeys});
  for (uint64_t group = l.begin; group < l.end; ++group) {
    const ChunkPlace chunk = chunk_of_threadgroup(l, p, cu_seqlens, group);
    const size_t n = chunk.rows, at = chunk.token * H + chunk.head;
    if (n == 0) continue;
    const size_t key_head = key_head_of(chunk.head, p.headsPerKey, p.keyHeads);
    const T* k = l.buffer<const T>(CHUNK_KKT_K) + (chunk.token * p.keyHeads + key_head) * K;
    const float* beta = l.buffer<const float>(CHUNK_KKT_BETA) + at;
    for (size_t i = 0; i < n; ++i) convert_row(k + i * p.keyHeads * K, K, scratch.keys + i * stride);
    for (size_t i = 0; i < n; ++i) scratch.betas[i] = beta[i * H];
    float* A = l.buffer<float>(CHUNK_KKT_A) + at * BT;
    if constexpr (kChannels)
      channel_kkt<T>(p, rows, scratch, n, G.from(at * K), A);
    else
      head_kkt<T>(p, scratch, n, G.from(at), A);
  }
  return 0;
}

}  // namespace

MLXTS_KERNEL(chunk_kkt_f32, chunk_kkt<float, false>)
MLXTS_KERNEL(chunk_kkt_f16, chunk_kkt<f16, false>)
MLXTS_KERNEL(chunk_kkt_bf16, chunk_kkt<bf16, false>)
MLXTS_KERNEL(chunk_kkt_f32_channels, chunk_kkt<float, true>)
MLXTS_KERNEL(chunk_kkt_f16_channels, chunk_kkt<f16, true>)
MLXTS_KERNEL(chunk_kkt_bf16_channels, chunk_kkt<bf16, true>)
