// One threadgroup: A of one chunk of one head, A_ij = (β_i k_i · k_j) exp(G_i − G_j) below the diagonal, else 0.
#include "chunk_channels.h"
#include "chunk_kkt.params.h"
#include "cpu_kernel.h"

using namespace mlxts;

namespace {

template <typename T>
int32_t chunk_kkt(const Launch& l) {
  const auto& p = l.args<ChunkKktParams>();
  const T* k = l.buffer<const T>(CHUNK_KKT_K);
  const float* beta = l.buffer<const float>(CHUNK_KKT_BETA);
  const float* sum = l.buffer<const float>(CHUNK_KKT_SUM);
  const float* sum_low = l.buffer<const float>(CHUNK_KKT_SUM_LOW);
  const Indices cu_seqlens = l.indices(CHUNK_KKT_CU_SEQLENS);
  if (!packed_right(cu_seqlens, p.sequences, p.tokens, l, CHUNK_KKT_FAULT_CU_SEQLENS)) return 1;
  const size_t K = p.keyDim, H = p.heads, BT = p.chunkLength, padded = round_up(K, 16);
  float* keys = static_cast<float*>(l.scratch);  // [BT, padded], then β·k rounded
  float* columns = keys + BT * padded;           // [K, BT]
  float* factor = columns + K * BT;              // [BT]
  float* gate_scratch = factor + BT;
  for (uint64_t group = l.begin; group < l.end; ++group) {
    const ChunkPlace place(p, cu_seqlens, group, l.threadgroups[0]);
    const size_t n = place.rows;
    if (n == 0) continue;
    Gates gates;
    const size_t gate_at = place.token * H + place.head;
    gates.gather(gate_scratch, BT, sum + gate_at, sum_low ? sum_low + gate_at : nullptr, H, n);
    const T* from = k + (place.token * p.keyHeads + place.key_head) * K;
    for (size_t i = 0; i < n; ++i) convert_row(from + i * p.keyHeads * K, K, keys + i * padded);
    transpose_padded({keys, padded}, n, K, columns, BT);
    for (size_t i = 0; i < n; ++i) factor[i] = beta[gate_at + i * H];
    scale_rows<T>(n, K, factor, keys, padded, keys, padded);
    decayed_kkt(n, BT, gates, l.buffer<float>(CHUNK_KKT_A) + gate_at * BT, H * BT, [&](auto& tile) {
      tile.accumulate(keys + tile.row * padded, padded, 1, columns + tile.column, BT, K);
    });
  }
  return 0;
}

// The same with a gate for each channel: A_ij = Σ_c β_i k_ic k_jc exp(G_ic − G_jc).
template <typename T>
int32_t chunk_kkt_channels(const Launch& l) {
  const auto& p = l.args<ChunkKktParams>();
  const float* beta = l.buffer<const float>(CHUNK_KKT_BETA);
  const float* sum = l.buffer<const float>(CHUNK_KKT_SUM);
  const float* sum_low = l.buffer<const float>(CHUNK_KKT_SUM_LOW);
  const Indices cu_seqlens = l.indices(CHUNK_KKT_CU_SEQLENS);
  if (!packed_right(cu_seqlens, p.sequences, p.tokens, l, CHUNK_KKT_FAULT_CU_SEQLENS)) return 1;
  const size_t K = p.keyDim, H = p.heads, BT = p.chunkLength, padded = round_up(K, kLanes);
  float* keys = static_cast<float*>(l.scratch);  // [BT, padded]
  float* weighted = keys + BT * padded;          // [BT, padded]: β·k rounded
  float* steps = weighted + BT * padded;         // [BT, padded]
  float* columns = steps + BT * padded;          // [K, BT]
  float* factor = columns + K * BT;              // [BT]
  memset(keys, 0, 2 * BT * padded * sizeof(float));
  for (uint64_t group = l.begin; group < l.end; ++group) {
    const ChunkPlace place(p, cu_seqlens, group, l.threadgroups[0]);
    const size_t n = place.rows, at = place.token * H + place.head;
    if (n == 0) continue;
    const T* k = l.buffer<const T>(CHUNK_KKT_K) + (place.token * p.keyHeads + place.key_head) * K;
    for (size_t i = 0; i < n; ++i) convert_row(k + i * p.keyHeads * K, K, keys + i * padded);
    for (size_t i = 0; i < n; ++i) factor[i] = beta[at + i * H];
    scale_rows<T>(n, K, factor, keys, padded, weighted, padded);
    const ChannelGates gates{sum + at * K, sum_low ? sum_low + at * K : nullptr, H * K};
    channel_products<float, false>(n, BT, K, padded, gates, weighted, keys, steps, columns,
                                   l.buffer<float>(CHUNK_KKT_A) + at * BT, H * BT);
  }
  return 0;
}

}  // namespace

MLXTS_KERNEL(chunk_kkt_f32, chunk_kkt<float>)
MLXTS_KERNEL(chunk_kkt_f16, chunk_kkt<f16>)
MLXTS_KERNEL(chunk_kkt_bf16, chunk_kkt<bf16>)
MLXTS_KERNEL(chunk_kkt_f32_channels, chunk_kkt_channels<float>)
MLXTS_KERNEL(chunk_kkt_f16_channels, chunk_kkt_channels<f16>)
MLXTS_KERNEL(chunk_kkt_bf16_channels, chunk_kkt_channels<bf16>)
