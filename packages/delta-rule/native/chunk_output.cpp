// One threadgroup: o of one chunk of one head; the scores of the chunk once, then a panel of value columns at a time.
#include "chunk_channels.h"
#include "chunk_output.params.h"
#include "cpu_kernel.h"

using namespace mlxts;

namespace {

constexpr size_t kPanel = 64;

// kChannels: G has a gate for each channel of k.
template <typename T, bool kChannels>
int32_t chunk_output(const Launch& l) {
  const auto& p = l.args<ChunkOutputParams>();
  const float* sum = l.buffer<const float>(CHUNK_OUTPUT_SUM);
  const float* sum_low = l.buffer<const float>(CHUNK_OUTPUT_SUM_LOW);
  const Indices cu_seqlens = l.indices(CHUNK_OUTPUT_CU_SEQLENS);
  const uint8_t* mask = l.buffer<const uint8_t>(CHUNK_OUTPUT_MASK);
  if (!packed_right(cu_seqlens, p.sequences, p.tokens, l, CHUNK_OUTPUT_FAULT_CU_SEQLENS)) return 1;
  const size_t K = p.keyDim, V = p.valueDim, H = p.heads, BT = p.chunkLength;
  // Rows of whole vectors where channels are taken as vectors; zeros beyond K.
  const size_t padded = kChannels ? round_up(K, kLanes) : K;
  const size_t most = BT > kPanel ? BT : kPanel;
  float* q_rows = static_cast<float*>(l.scratch);  // [BT, padded]
  float* wide = q_rows + BT * padded;              // [max(BT, kPanel), padded]: k, then panels of h
  float* columns = wide + most * padded;           // [K, BT or kPanel]: the same transposed
  float* scores = columns + K * most;              // [BT, BT]
  float* values = scores + BT * BT;                // [BT, kPanel]
  float* decay = values + BT * kPanel;             // [BT]
  float* gate_scratch = decay + BT;                // channels: [BT, padded], steps
  const vf32 scale = splat(p.scale);
  for (uint64_t group = l.begin; group < l.end; ++group) {
    const ChunkPlace place(p, cu_seqlens, group, l.threadgroups[0]);
    const size_t n = place.rows, at = place.token * H + place.head;
    if (n == 0) continue;
    const size_t key_at = (place.token * p.keyHeads + place.key_head) * K, key_stride = p.keyHeads * K;
    const T* q_act = l.buffer<const T>(CHUNK_OUTPUT_Q) + key_at;
    const T* k_act = l.buffer<const T>(CHUNK_OUTPUT_K) + key_at;
    WideRows q{q_rows, padded};
    if constexpr (kChannels) {
      if (padded > K) memset(q_rows, 0, (BT + most) * padded * sizeof(float));
      for (size_t i = 0; i < n; ++i) {
        convert_row(q_act + i * key_stride, K, q_rows + i * padded);
        convert_row(k_act + i * key_stride, K, wide + i * padded);
      }
      const ChannelGates gates{sum + at * K, sum_low ? sum_low + at * K : nullptr, H * K};
      channel_products<T, true>(n, BT, K, padded, gates, q_rows, wide, gate_scratch, columns, scores, BT);
      // What is left of exp(G_i) q_i: from the chunk's beginning to each block.
      for (size_t row = 0; row < n; row += kBlockRows)
        gates.decay(row, K, [&](size_t c, int, vf32 decay) {
          for (size_t i = row; i < n && i < row + kBlockRows; ++i)
            store(q_rows + i * padded + c, load(q_rows + i * padded + c) * decay);
        });
    } else {
      Gates gates;
      gates.gather(gate_scratch, BT, sum + at, sum_low ? sum_low + at : nullptr, H, n);
      gates.decays(decay, n);
      q = widen_rows(q_act, key_stride, n, K, q_rows);
      transpose_padded(widen_rows(k_act, key_stride, n, K, wide), n, K, columns, BT);
      decayed_scores<T>(n, BT, gates, scores, [&](auto& tile) {
        tile.accumulate(q.data + tile.row * q.stride, q.stride, 1, columns + tile.column, BT, K);
      });
    }
    const T* h = l.buffer<const T>(CHUNK_OUTPUT_H) + (place.slot * H + place.head) * V * K;
    const T* v_new = l.buffer<const T>(CHUNK_OUTPUT_V_NEW) + at * V;
    T* o = l.buffer<T>(CHUNK_OUTPUT_O) + at * V;
    for (size_t v0 = 0; v0 < V; v0 += kPanel) {
      const size_t panel = V - v0 < kPanel ? V - v0 : kPanel;
      transpose_padded(widen_rows(h + v0 * K, K, panel, K, wide), panel, K, columns, kPanel);
      for (size_t i = 0; i < n; ++i) {
        float* row = values + i * kPanel;
        convert_row(v_new + i * H * V + v0, panel, row);
        if (panel < kPanel) memset(row + panel, 0, (kPanel - panel) * sizeof(float));
      }
      for_tiles(
          n, [panel](size_t) { return panel; },
          [&](auto tile) {
            tile.accumulate(q.data + tile.row * q.stride, q.stride, 1, columns + tile.column, kPanel, K);
            if constexpr (!kChannels) tile.scale_rows(decay);
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
    if (mask) clear_skipped(mask + place.token, n, o, H * V, V);
  }
  return 0;
}

}  // namespace

MLXTS_KERNEL(chunk_output_f32, chunk_output<float, false>)
MLXTS_KERNEL(chunk_output_f16, chunk_output<f16, false>)
MLXTS_KERNEL(chunk_output_bf16, chunk_output<bf16, false>)
MLXTS_KERNEL(chunk_output_f32_channels, chunk_output<float, true>)
MLXTS_KERNEL(chunk_output_f16_channels, chunk_output<f16, true>)
MLXTS_KERNEL(chunk_output_bf16_channels, chunk_output<bf16, true>)
