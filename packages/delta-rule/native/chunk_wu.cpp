// One threadgroup: u = X·(β v) and w = X·(β exp(G) k) of one chunk of one head, a panel of columns at a time.
#include "chunk_channels.h"
#include "chunk_wu.params.h"

using namespace mlxts;

namespace {

constexpr size_t kPanel = CHUNK_WU_PANEL_COLUMNS;

// to = X · rows for n rows of X that lie `x_stride` apart; weigh(c0, width) makes the panel of `columns` from column c0
// on.
template <typename T, typename Weigh>
MLXTS_INLINE void multiply(const float* X, size_t x_stride, size_t n, const float* panel, size_t columns, T* to,
                           size_t to_stride, Weigh weigh) {
  for (size_t c0 = 0; c0 < columns; c0 += kPanel) {
    const size_t width = columns - c0 < kPanel ? columns - c0 : kPanel;
    weigh(c0, width);
    for_tiles(
        n, [width](size_t) { return width; },
        [&](auto tile) {
          tile.accumulate(X + tile.row * x_stride, x_stride, 1, panel + tile.column, kPanel, tile.row + tile.rows);
          tile.each([&](size_t i, size_t c, vf32 v) { store_up_to(to + i * to_stride + c0 + c, v, width - c); });
        });
  }
}

// A panel of keys where each channel has its own gate: round(β_i exp(G_ic) k_ic).
template <typename T>
void weigh_channels(size_t n, size_t width, const float* betas, const T* k, size_t stride, CumulativeGateTensors G,
                    float* panel) {
  for (size_t i = 0; i < n; ++i) {
    const vf32 beta = splat(betas[i]);
    const T* row = k + i * stride;
    decays_of(G, i, width, [&](size_t c, int m, vf32 decay) {
      const vf32 key = m == kLanes ? load(row + c) : load_partial(row + c, m);
      store(panel + i * kPanel + c, round_to<T>(key * (decay * beta)));
    });
  }
}

// kChannels: G has a gate for each channel of k.
template <typename T, bool kChannels>
int32_t chunk_wu(const Launch& l) {
  const auto& p = l.args<ChunkWuParams>();
  const Indices cu_seqlens = l.indices(CHUNK_WU_CU_SEQLENS);
  if (!packed_right(cu_seqlens, p.sequences, p.tokens, l, CHUNK_WU_FAULT_CU_SEQLENS)) return 1;
  const size_t K = p.keyDim, V = p.valueDim, H = p.heads, BT = p.chunkLength, gates = kChannels ? K : 1;
  const CumulativeGateTensors gate_tensors{l.buffer<const float>(CHUNK_WU_CUMULATIVE_GATE),
                                           l.buffer<const float>(CHUNK_WU_CUMULATIVE_GATE_LOW), H * gates};
  const auto scratch = scratch_of(l, p);
  for (uint64_t group = l.begin; group < l.end; ++group) {
    const ChunkPlace chunk = chunk_of_threadgroup(l, p, cu_seqlens, group);
    const size_t n = chunk.rows, at = chunk.token * H + chunk.head;
    if (n == 0) continue;
    const size_t key_head = key_head_of(chunk.head, p.headsPerKey, p.keyHeads), key_stride = p.keyHeads * K;
    const float* X = l.buffer<const float>(CHUNK_WU_X) + at * BT;
    const float* beta = l.buffer<const float>(CHUNK_WU_BETA) + at;
    const T* v = l.buffer<const T>(CHUNK_WU_V) + at * V;
    const T* k = l.buffer<const T>(CHUNK_WU_K) + (chunk.token * p.keyHeads + key_head) * K;
    for (size_t i = 0; i < n; ++i) scratch.factors[i] = beta[i * H];
    multiply(X, H * BT, n, scratch.panel, V, l.buffer<T>(CHUNK_WU_U) + at * V, H * V, [&](size_t c0, size_t width) {
      scale_rows<T>(n, width, scratch.factors, v + c0, H * V, scratch.panel, kPanel);
    });
    const CumulativeGateTensors from = gate_tensors.from(at * gates);
    if constexpr (!kChannels) {
      const CumulativeGates G{scratch.cumulativeGateHigh, scratch.cumulativeGateLow};
      G.read(from, n, BT);
      G.decays(scratch.factors, n);
      for (size_t i = 0; i < n; ++i) scratch.factors[i] *= beta[i * H];
    }
    multiply(X, H * BT, n, scratch.panel, K, l.buffer<T>(CHUNK_WU_W) + at * K, H * K, [&](size_t c0, size_t width) {
      if constexpr (kChannels)
        weigh_channels(n, width, scratch.factors, k + c0, key_stride, from.from(c0), scratch.panel);
      else
        scale_rows<T>(n, width, scratch.factors, k + c0, key_stride, scratch.panel, kPanel);
    });
  }
  return 0;
}

}  // namespace

MLXTS_KERNEL(chunk_wu_f32, chunk_wu<float, false>)
MLXTS_KERNEL(chunk_wu_f16, chunk_wu<f16, false>)
MLXTS_KERNEL(chunk_wu_bf16, chunk_wu<bf16, false>)
MLXTS_KERNEL(chunk_wu_f32_channels, chunk_wu<float, true>)
MLXTS_KERNEL(chunk_wu_f16_channels, chunk_wu<f16, true>)
MLXTS_KERNEL(chunk_wu_bf16_channels, chunk_wu<bf16, true>)
