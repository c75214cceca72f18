// One threadgroup: A of one chunk of one head, A_ij = (β_i k_i · k_j) exp(G_i − G_j) below the diagonal, else 0.
#include "chunk.h"
#include "chunk_kkt.params.h"
#include "cpu_kernel.h"

using namespace mlxts;

namespace {

template <typename T>
void chunk_kkt(const Launch& l) {
  const auto& p = l.args<ChunkKktParams>();
  const T* k = l.buffer<const T>(CHUNK_KKT_K);
  const float* beta = l.buffer<const float>(CHUNK_KKT_BETA);
  const float* sum = l.buffer<const float>(CHUNK_KKT_SUM);
  const float* sum_low = l.buffer<const float>(CHUNK_KKT_SUM_LOW);
  const size_t K = p.keyDim, H = p.heads, BT = p.chunkLength, padded = round_up(K, 16);
  float* keys = static_cast<float*>(l.scratch);  // [BT, padded], then β·k rounded
  float* columns = keys + BT * padded;           // [K, BT]
  float* factor = columns + K * BT;              // [BT]
  float* gate_scratch = factor + BT;
  for (uint64_t group = l.begin; group < l.end; ++group) {
    const ChunkPlace place(p, group, l.threadgroups[0]);
    const size_t n = place.rows;
    Gates gates;
    const size_t gate_at = place.token * H + place.head;
    gates.gather(gate_scratch, BT, sum + gate_at, sum_low ? sum_low + gate_at : nullptr, H, n);
    const T* from = k + (place.token * p.keyHeads + place.key_head) * K;
    for (size_t i = 0; i < n; ++i) widen_row(keys + i * padded, from + i * p.keyHeads * K, K);
    transpose_padded({keys, padded}, n, K, columns, BT);
    for (size_t i = 0; i < n; ++i) factor[i] = beta[gate_at + i * H];
    scale_rows<T>(n, K, factor, keys, padded, keys, padded);
    decayed_kkt(n, BT, gates, l.buffer<float>(CHUNK_KKT_A) + gate_at * BT, H * BT, [&](auto& tile) {
      tile.accumulate(keys + tile.row * padded, padded, 1, columns + tile.column, BT, K);
    });
  }
}

}  // namespace

MLXTS_KERNEL(chunk_kkt_f32, chunk_kkt<float>)
MLXTS_KERNEL(chunk_kkt_f16, chunk_kkt<f16>)
MLXTS_KERNEL(chunk_kkt_bf16, chunk_kkt<bf16>)
