// One threadgroup: o of one chunk of one head; the scores of the chunk once, then a panel of value columns at a time.
#include "chunk_channels.h"
#include "chunk_output.params.h"

using namespace mlxts;

namespace {

constexpr size_t kPanel = CHUNK_OUTPUT_PANEL_VALUES;

// A chunk of one head: its n tokens, and the state before them.
template <typename T>
struct Chunk {
  size_t n;
  const T *q, *k, *v_new, *h;
  T* o;
  size_t key_stride, value_stride;  // from token to token
};

// The scores with one gate a head, and exp(G). Returns q.
template <typename T>
WideRows head_scores(const ChunkOutputParams& p, ChunkOutputScratch scratch, Chunk<T> chunk,
                     CumulativeGateTensors gates) {
  const size_t n = chunk.n, K = p.keyDim, BT = p.chunkLength;
  const CumulativeGates G{scratch.cumulativeGateHigh, scratch.cumulativeGateLow};
  G.read(gates, n, BT);
  G.decays(scratch.decays, n);
  const WideRows q = widen_rows(chunk.q, chunk.key_stride, n, K, scratch.queries, p.keyStride);
  const WideRows k = widen_rows(chunk.k, chunk.key_stride, n, K, scratch.keysThenStates, p.keyStride);
  transpose_padded(k, n, K, scratch.transposed, BT);
  decayed_scores<T>(n, BT, G, scratch.scores, [&](auto& tile) {
    tile.accumulate(q.data + tile.row * q.stride, q.stride, 1, scratch.transposed + tile.column, BT, K);
  });
  return q;
}

// The scores with a gate for each channel. Returns exp(G) q.
template <typename T>
WideRows channel_scores(const ChannelRows& rows, ChunkOutputScratch scratch, Chunk<T> chunk, CumulativeGateTensors G) {
  const size_t n = chunk.n, K = rows.K, stride = rows.stride;
  float* queries = scratch.queries;
  for (size_t i = 0; i < n; ++i) {
    convert_row(chunk.q + i * chunk.key_stride, K, queries + i * stride);
    convert_row(chunk.k + i * chunk.key_stride, K, rows.keys + i * stride);
  }
  steps_of(rows, n, G);
  channel_products<T>(n, rows, ChannelProduct<true>{queries, scratch.scores, rows.BT});
  // What is left of exp(G_i) q_i: from the chunk's beginning to each block.
  for (size_t first = 0; first < n; first += kBlockRows)
    decays_of(G, first, K, [&](size_t c, int, vf32 decay) {
      for (size_t i = first; i < n && i < first + kBlockRows; ++i)
        store(queries + i * stride + c, load(queries + i * stride + c) * decay);
    });
  return {queries, stride};
}

// A panel of the state's rows, transposed, and of the values' columns, with zeros up to kPanel.
template <typename T>
void read_panel(const ChunkOutputParams& p, ChunkOutputScratch scratch, Chunk<T> chunk, size_t v0, size_t width) {
  const size_t K = p.keyDim;
  const WideRows h = widen_rows(chunk.h + v0 * K, K, width, K, scratch.keysThenStates, p.keyStride);
  transpose_padded(h, width, K, scratch.transposed, kPanel);
  for (size_t i = 0; i < chunk.n; ++i) {
    float* row = scratch.values + i * kPanel;
    convert_row(chunk.v_new + i * chunk.value_stride + v0, width, row);
    if (width < kPanel) memset(row + width, 0, (kPanel - width) * sizeof(float));
  }
}

// o = scale · (q hᵀ + scores · vNew) in a panel; with one gate a head q hᵀ is yet to be multiplied by exp(G).
template <bool kChannels, typename T>
void store_output(const ChunkOutputParams& p, ChunkOutputScratch scratch, Chunk<T> chunk, WideRows q, size_t v0,
                  size_t width) {
  const size_t BT = p.chunkLength;
  const vf32 scale = splat(p.scale);
  for_tiles(
      chunk.n, [width](size_t) { return width; },
      [&](auto tile) {
        tile.accumulate(q.data + tile.row * q.stride, q.stride, 1, scratch.transposed + tile.column, kPanel, p.keyDim);
        if constexpr (!kChannels) tile.scale_rows(scratch.decays);
        tile.accumulate(scratch.scores + tile.row * BT, BT, 1, scratch.values + tile.column, kPanel,
                        tile.row + tile.rows);
        tile.each([&](size_t i, size_t v, vf32 out) {
          store_up_to(chunk.o + i * chunk.value_stride + v0 + v, out * scale, width - v);
        });
      });
}

// kChannels: G has a gate for each channel of k.
template <typename T, bool kChannels>
int32_t chunk_output(const Launch& l) {
  const auto& p = l.args<ChunkOutputParams>();
  const Indices cu_seqlens = l.indices(CHUNK_OUTPUT_CU_SEQLENS);
  if (!packed_right(cu_seqlens, p.sequences, p.tokens, l, CHUNK_OUTPUT_FAULT_CU_SEQLENS)) return 1;
  const uint8_t* mask = l.buffer<const uint8_t>(CHUNK_OUTPUT_MASK);
  const size_t K = p.keyDim, V = p.valueDim, H = p.heads, BT = p.chunkLength, gates = kChannels ? K : 1;
  const CumulativeGateTensors G{l.buffer<const float>(CHUNK_OUTPUT_CUMULATIVE_GATE),
                                l.buffer<const float>(CHUNK_OUTPUT_CUMULATIVE_GATE_LOW), H * gates};
  const auto scratch = scratch_of(l, p);
  const ChannelRows rows{scratch.keysThenStates, scratch.steps, scratch.transposed, K, BT, p.keyStride};
  if constexpr (kChannels) clear_beyond(rows, {scratch.queries});
  for (uint64_t group = l.begin; group < l.end; ++group) {
    const ChunkPlace place = chunk_of_threadgroup(l, p, cu_seqlens, group);
    if (place.rows == 0) continue;
    const size_t at = place.token * H + place.head, key_head = key_head_of(place.head, p.headsPerKey, p.keyHeads);
    const size_t key_at = (place.token * p.keyHeads + key_head) * K;
    const Chunk<T> chunk{place.rows,
                         l.buffer<const T>(CHUNK_OUTPUT_Q) + key_at,
                         l.buffer<const T>(CHUNK_OUTPUT_K) + key_at,
                         l.buffer<const T>(CHUNK_OUTPUT_V_NEW) + at * V,
                         l.buffer<const T>(CHUNK_OUTPUT_H) + (place.slot * H + place.head) * V * K,
                         l.buffer<T>(CHUNK_OUTPUT_O) + at * V,
                         p.keyHeads * K,
                         H * V};
    WideRows q;
    if constexpr (kChannels)
      q = channel_scores(rows, scratch, chunk, G.from(at * K));
    else
      q = head_scores(p, scratch, chunk, G.from(at));
    for (size_t v0 = 0; v0 < V; v0 += kPanel) {
      const size_t width = V - v0 < kPanel ? V - v0 : kPanel;
      read_panel(p, scratch, chunk, v0, width);
      store_output<kChannels>(p, scratch, chunk, q, v0, width);
    }
    if (mask) clear_skipped(mask + place.token, chunk.n, chunk.o, chunk.value_stride, V);
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
