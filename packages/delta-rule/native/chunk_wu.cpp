// One threadgroup: u = X·(β v) and w = X·(β exp(G) k) of one chunk of one head, a panel of columns at a time.
#include "chunk_channels.h"
#include "chunk_wu.params.h"
#include "cpu_kernel.h"

using namespace mlxts;

namespace {

constexpr size_t kPanel = 64;

// kChannels: G has a gate for each channel of k.
template <typename T, bool kChannels>
int32_t chunk_wu(const Launch& l) {
  const auto& p = l.args<ChunkWuParams>();
  const float* beta = l.buffer<const float>(CHUNK_WU_BETA);
  const float* sum = l.buffer<const float>(CHUNK_WU_SUM);
  const float* sum_low = l.buffer<const float>(CHUNK_WU_SUM_LOW);
  const Indices cu_seqlens = l.indices(CHUNK_WU_CU_SEQLENS);
  if (!packed_right(cu_seqlens, p.sequences, p.tokens, l, CHUNK_WU_FAULT_CU_SEQLENS)) return 1;
  const size_t K = p.keyDim, V = p.valueDim, H = p.heads, BT = p.chunkLength;
  float* panel = static_cast<float*>(l.scratch);  // [BT, kPanel]
  float* factor = panel + BT * kPanel;            // [BT]
  float* gate_scratch = factor + BT;
  for (uint64_t group = l.begin; group < l.end; ++group) {
    const ChunkPlace place(p, cu_seqlens, group, l.threadgroups[0]);
    const size_t n = place.rows, at = place.token * H + place.head;
    if (n == 0) continue;
    const float* X = l.buffer<const float>(CHUNK_WU_X) + at * BT;
    // to = X·from, from and to [n, columns]; weigh(c0, width) makes a panel of columns of `from`.
    const auto product = [&](auto weigh, T* to, size_t to_stride, size_t columns) {
      for (size_t c0 = 0; c0 < columns; c0 += kPanel) {
        const size_t width = columns - c0 < kPanel ? columns - c0 : kPanel;
        weigh(c0, width);
        for_tiles(
            n, [width](size_t) { return width; },
            [&](auto tile) {
              tile.accumulate(X + tile.row * H * BT, H * BT, 1, panel + tile.column, kPanel, tile.row + tile.rows);
              tile.each([&](size_t i, size_t c, vf32 v) { store_up_to(to + i * to_stride + c0 + c, v, width - c); });
            });
      }
    };
    const T* v = l.buffer<const T>(CHUNK_WU_V) + at * V;
    for (size_t i = 0; i < n; ++i) factor[i] = beta[at + i * H];
    product([&](size_t c0, size_t width) { scale_rows<T>(n, width, factor, v + c0, H * V, panel, kPanel); },
            l.buffer<T>(CHUNK_WU_U) + at * V, H * V, V);
    const T* k = l.buffer<const T>(CHUNK_WU_K) + (place.token * p.keyHeads + place.key_head) * K;
    const size_t key_stride = p.keyHeads * K;
    T* w = l.buffer<T>(CHUNK_WU_W) + at * K;
    if constexpr (kChannels) {
      const ChannelGates gates{sum + at * K, sum_low ? sum_low + at * K : nullptr, H * K};
      product(
          [&](size_t c0, size_t width) {
            for (size_t i = 0; i < n; ++i) {
              const vf32 weight = splat(factor[i]);
              const T* row = k + i * key_stride + c0;
              gates.from(c0).decay(i, width, [&](size_t c, int m, vf32 decay) {
                const vf32 key = m == kLanes ? load(row + c) : load_partial(row + c, m);
                store(panel + i * kPanel + c, round_to<T>(key * (decay * weight)));
              });
            }
          },
          w, H * K, K);
    } else {
      Gates gates;
      gates.gather(gate_scratch, BT, sum + at, sum_low ? sum_low + at : nullptr, H, n);
      gates.decays(factor, n);
      for (size_t i = 0; i < n; ++i) factor[i] *= beta[at + i * H];
      product([&](size_t c0, size_t width) { scale_rows<T>(n, width, factor, k + c0, key_stride, panel, kPanel); }, w,
              H * K, K);
    }
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
