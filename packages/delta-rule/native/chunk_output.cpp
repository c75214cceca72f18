// One threadgroup: o of one chunk of one head; the scores of the chunk once, then a panel of value columns at a time.
#include "chunk.h"
#include "chunk_output.params.h"
#include "cpu_kernel.h"

using namespace mlxts;

namespace {

constexpr size_t kPanel = 64;

template <typename T>
void chunk_output(const Launch& l) {
  const auto& p = l.args<ChunkOutputParams>();
  const float* sum = l.buffer<const float>(CHUNK_OUTPUT_SUM);
  const float* sum_low = l.buffer<const float>(CHUNK_OUTPUT_SUM_LOW);
  const size_t K = p.keyDim, V = p.valueDim, H = p.heads, BT = p.chunkLength;
  const size_t most = BT > kPanel ? BT : kPanel;
  float* q_rows = static_cast<float*>(l.scratch);  // [BT, K]
  float* wide = q_rows + BT * K;                   // [max(BT, kPanel), K]: k, then panels of h
  float* columns = wide + most * K;                // [K, BT or kPanel]: the same transposed
  float* scores = columns + K * most;              // [BT, BT]
  float* values = scores + BT * BT;                // [BT, kPanel]
  float* decay = values + BT * kPanel;             // [BT]
  float* gate_scratch = decay + BT;
  const vf32 scale = splat(p.scale);
  for (uint64_t group = l.begin; group < l.end; ++group) {
    const ChunkPlace place(p, group, l.threadgroups[0]);
    const size_t n = place.rows, at = place.token * H + place.head;
    const size_t key_at = (place.token * p.keyHeads + place.key_head) * K, key_stride = p.keyHeads * K;
    Gates gates;
    gates.gather(gate_scratch, BT, sum + at, sum_low ? sum_low + at : nullptr, H, n);
    gates.decays(decay, n);
    const WideRows q = widen_rows(l.buffer<const T>(CHUNK_OUTPUT_Q) + key_at, key_stride, n, K, q_rows);
    const WideRows k = widen_rows(l.buffer<const T>(CHUNK_OUTPUT_K) + key_at, key_stride, n, K, wide);
    transpose_padded(k, n, K, columns, BT);
    decayed_scores<T>(n, BT, gates, scores, [&](auto& tile) {
      tile.accumulate(q.data + tile.row * q.stride, q.stride, 1, columns + tile.column, BT, K);
    });
    const T* h = l.buffer<const T>(CHUNK_OUTPUT_H) +
                 ((place.sequence * l.threadgroups[0] + place.chunk) * H + place.head) * V * K;
    const T* v_new = l.buffer<const T>(CHUNK_OUTPUT_V_NEW) + at * V;
    T* o = l.buffer<T>(CHUNK_OUTPUT_O) + at * V;
    for (size_t v0 = 0; v0 < V; v0 += kPanel) {
      const size_t panel = V - v0 < kPanel ? V - v0 : kPanel;
      transpose_padded(widen_rows(h + v0 * K, K, panel, K, wide), panel, K, columns, kPanel);
      for (size_t i = 0; i < n; ++i) {
        float* row = values + i * kPanel;
        widen_row(row, v_new + i * H * V + v0, panel);
        if (panel < kPanel) memset(row + panel, 0, (kPanel - panel) * sizeof(float));
      }
      for_tiles(
          n, [panel](size_t) { return panel; },
          [&](auto tile) {
            tile.accumulate(q.data + tile.row * q.stride, q.stride, 1, columns + tile.column, kPanel, K);
            tile.scale_rows(decay);
            tile.accumulate(scores + tile.row * BT, BT, 1, values + tile.column, kPanel, tile.row + tile.rows);
            tile.each([&](size_t i, size_t v, vf32 out) {
              T* to = o + i * H * V + v0 + v;
              if (v + kLanes <= panel)
                store(to, out * scale);
              else
                store_partial(to, out * scale, panel - v);
            });
          });
    }
  }
}

}  // namespace

MLXTS_KERNEL(chunk_output_f32, chunk_output<float>)
MLXTS_KERNEL(chunk_output_f16, chunk_output<f16>)
MLXTS_KERNEL(chunk_output_bf16, chunk_output<bf16>)
