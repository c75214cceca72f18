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
  const size_t K = p.keyDim, H = p.heads, BT = p.chunkLength;
  float* keys = static_cast<float*>(l.scratch);  // [BT, K], then β·k rounded
  float* columns = keys + BT * K;                // [K, BT]
  float* gate_scratch = columns + K * BT;
  for (uint64_t group = l.begin; group < l.end; ++group) {
    const ChunkPlace place(p, group, l.threadgroups[0]);
    const size_t n = place.rows;
    Gates gates;
    const size_t gate_at = place.token * H + place.head;
    gates.gather(gate_scratch, BT, sum + gate_at, sum_low ? sum_low + gate_at : nullptr, H, n);
    const T* from = k + (place.token * p.keyHeads + place.key_head) * K;
    for (size_t i = 0; i < n; ++i) widen_row(keys + i * K, from + i * p.keyHeads * K, K);
    transpose_padded({keys, K}, n, K, columns, BT);
    for (size_t i = 0; i < n; ++i) {
      const vf32 b = splat(beta[gate_at + i * H]);
      float* row = keys + i * K;
      for_lanes(
          K, [&](size_t c) { store(row + c, round_to<T>(load(row + c) * b)); },
          [&](size_t c, int m) { store_partial(row + c, round_to<T>(load_partial(row + c, m) * b), m); });
    }
    float* A = l.buffer<float>(CHUNK_KKT_A) + gate_at * BT;
    for_tiles(
        n, [](size_t end) { return end - 1; },
        [&](auto tile) {
          tile.accumulate(keys + tile.row * K, K, 1, columns + tile.column, BT, K);
          tile.each([&](size_t i, size_t j, vf32 dot) {
            const vi32 below = lane_index() + splat_i32(j) < splat_i32(i);
            const vf32 decay = exp(select(below, gates.difference(i, j), vf32{}));
            store(A + i * H * BT + j, select(below, dot * decay, vf32{}));
          });
        });
    // What no tile covered: columns from the last tile to the end of the row.
    for (size_t i = 0; i < n; ++i) {
      const size_t end = i / kTileRows * kTileRows + kTileRows <= n ? i / kTileRows * kTileRows + kTileRows : i + 1;
      for (size_t j = round_up(end - 1, kLanes); j < BT; j += kLanes) store(A + i * H * BT + j, vf32{});
    }
  }
}

}  // namespace

MLXTS_KERNEL(chunk_kkt_f32, chunk_kkt<float>)
MLXTS_KERNEL(chunk_kkt_f16, chunk_kkt<f16>)
MLXTS_KERNEL(chunk_kkt_bf16, chunk_kkt<bf16>)
