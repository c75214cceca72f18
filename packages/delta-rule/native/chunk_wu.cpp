// One threadgroup: u = X·(β v) and w = X·(β exp(G) k) of one chunk of one head, a panel of columns at a time.
#include "chunk.h"
#include "chunk_wu.params.h"
#include "cpu_kernel.h"

using namespace mlxts;

namespace {

constexpr size_t kPanel = 64;

template <typename T>
void chunk_wu(const Launch& l) {
  const auto& p = l.args<ChunkWuParams>();
  const float* beta = l.buffer<const float>(CHUNK_WU_BETA);
  const float* sum = l.buffer<const float>(CHUNK_WU_SUM);
  const float* sum_low = l.buffer<const float>(CHUNK_WU_SUM_LOW);
  const size_t K = p.keyDim, V = p.valueDim, H = p.heads, BT = p.chunkLength;
  float* panel = static_cast<float*>(l.scratch);  // [BT, kPanel]
  float* factor = panel + BT * kPanel;            // [BT]
  float* gate_scratch = factor + BT;
  for (uint64_t group = l.begin; group < l.end; ++group) {
    const ChunkPlace place(p, group, l.threadgroups[0]);
    const size_t n = place.rows, at = place.token * H + place.head;
    const float* X = l.buffer<const float>(CHUNK_WU_X) + at * BT;
    // to = X·round(factor·from), from and to [n, columns] with rows that far apart.
    const auto product = [&](const T* from, size_t from_stride, T* to, size_t to_stride, size_t columns) {
      for (size_t c0 = 0; c0 < columns; c0 += kPanel) {
        const size_t width = columns - c0 < kPanel ? columns - c0 : kPanel;
        scale_rows<T>(n, width, factor, from + c0, from_stride, panel, kPanel);
        for_tiles(
            n, [width](size_t) { return width; },
            [&](auto tile) {
              tile.accumulate(X + tile.row * H * BT, H * BT, 1, panel + tile.column, kPanel, tile.row + tile.rows);
              tile.each([&](size_t i, size_t c, vf32 v) {
                T* out = to + i * to_stride + c0 + c;
                if (c + kLanes <= width)
                  store(out, v);
                else
                  store_partial(out, v, width - c);
              });
            });
      }
    };
    for (size_t i = 0; i < n; ++i) factor[i] = beta[at + i * H];
    product(l.buffer<const T>(CHUNK_WU_V) + at * V, H * V, l.buffer<T>(CHUNK_WU_U) + at * V, H * V, V);
    Gates gates;
    gates.gather(gate_scratch, BT, sum + at, sum_low ? sum_low + at : nullptr, H, n);
    gates.decays(factor, n);
    for (size_t i = 0; i < n; ++i) factor[i] *= beta[at + i * H];
    product(l.buffer<const T>(CHUNK_WU_K) + (place.token * p.keyHeads + place.key_head) * K, p.keyHeads * K,
            l.buffer<T>(CHUNK_WU_W) + at * K, H * K, K);
  }
}

}  // namespace

MLXTS_KERNEL(chunk_wu_f32, chunk_wu<float>)
MLXTS_KERNEL(chunk_wu_f16, chunk_wu<f16>)
MLXTS_KERNEL(chunk_wu_bf16, chunk_wu<bf16>)
