// One threadgroup: a block of value rows of one head, chunk after chunk. The state is kept transposed, [K, rows], so
// that both products run over vectors of value rows.
#include "chunk_channels.h"
#include "chunk_state.params.h"
#include "cpu_kernel.h"

using namespace mlxts;

namespace {

constexpr size_t kRows = 64;

// kChannels: G has a gate for each channel of k.
template <typename T, bool kChannels>
int32_t chunk_state(const Launch& l) {
  const auto& p = l.args<ChunkStateParams>();
  const float* sum = l.buffer<const float>(CHUNK_STATE_SUM);
  const float* sum_low = l.buffer<const float>(CHUNK_STATE_SUM_LOW);
  const float* initial = l.buffer<const float>(CHUNK_STATE_INITIAL_STATE);
  float* final_state = l.buffer<float>(CHUNK_STATE_FINAL_STATE);
  float* snapshots = l.buffer<float>(CHUNK_STATE_SNAPSHOTS);
  const Indices cu_seqlens = l.indices(CHUNK_STATE_CU_SEQLENS);
  if (!packed_right(cu_seqlens, p.sequences, p.tokens, l, CHUNK_STATE_FAULT_CU_SEQLENS)) return 1;
  const size_t K = p.keyDim, V = p.valueDim, H = p.heads, BT = p.chunkLength;
  float* state = static_cast<float*>(l.scratch);  // [K, kRows]
  float* turned = state + K * kRows;              // [kRows, K]
  float* gated = turned + K * kRows;              // [BT, kRows]
  float* w_rows = gated + BT * kRows;             // [BT, K]
  float* k_rows = w_rows + BT * K;                // [BT, K]
  float* kept = k_rows + BT * K;                  // [BT]
  float* gate_scratch = kept + BT;                // channels: [K], the decay of the chunk
  for (uint64_t group = l.begin; group < l.end; ++group) {
    const size_t v0 = group % l.threadgroups[0] * kRows, rows = V - v0 < kRows ? V - v0 : kRows;
    const size_t head = group / l.threadgroups[0] % H, sequence = group / l.threadgroups[0] / H;
    const size_t key_head = key_head_of(head, p.headsPerKey, p.keyHeads);
    const Chunks chunks(p, cu_seqlens, sequence);
    const size_t state_at = (sequence * H + head) * V * K;
    if (initial)
      read_state(p, initial + state_at, v0, rows, state, kRows);
    else
      memset(state, 0, K * kRows * sizeof(float));
    float* snapshot = nullptr;
    if (snapshots)
      snapshot =
          snapshots +
          (first_snapshot(cu_seqlens, sequence, chunks.all.tokens, p.tokens, p.snapshotEvery) * H + head) * V * K;
    for (size_t chunk = 0; size_t n = chunks.rows(chunk, BT); ++chunk) {
      const size_t at = (chunks.begin + chunk * BT) * H + head, last = n - 1;
      T* h = l.buffer<T>(CHUNK_STATE_H) + (((chunks.slot + chunk) * H + head) * V + v0) * K;
      transpose(state, kRows, K, rows, turned, K);
      for (size_t r = 0; r < rows; ++r) convert_row(turned + r * K, K, h + r * K);

      Gates gates;
      if constexpr (!kChannels) {
        gates.gather(gate_scratch, BT, sum + at, sum_low ? sum_low + at : nullptr, H, n);
        gates.decays_to(last, kept);
      }
      const T* w_act = l.buffer<const T>(CHUNK_STATE_W) + at * K;
      const WideRows w = widen_rows(w_act, H * K, n, K, w_rows);
      const T* u = l.buffer<const T>(CHUNK_STATE_U) + at * V + v0;
      T* v_new = l.buffer<T>(CHUNK_STATE_V_NEW) + at * V + v0;
      const size_t next = chunks.rows(chunk + 1, BT);
      for_tiles(
          n, [rows](size_t) { return rows; },
          [&](auto tile) {
            if (tile.column == 0 && tile.row + tile.rows <= next) {
              const size_t ahead = (tile.row + BT) * H;
              prefetch_rows(w_act + ahead * K, H * K * sizeof(T), tile.rows, K * sizeof(T));
              prefetch_rows(u + ahead * V, H * V * sizeof(T), tile.rows, rows * sizeof(T));
            }
            tile.accumulate(w.data + tile.row * w.stride, w.stride, 1, state + tile.column, kRows, K);
            tile.each([&](size_t i, size_t r, vf32 predicted) {
              const size_t at_row = i * H * V + r;
              const bool full = r + kLanes <= rows;
              const int m = full ? kLanes : rows - r;
              const vf32 d = (full ? load(u + at_row) : load_partial(u + at_row, m)) - predicted;
              if (full)
                store(v_new + at_row, d);
              else
                store_partial(v_new + at_row, d, m);
              store(gated + i * kRows + r, round_to<T>(kChannels ? d : d * splat(kept[i])));
            });
          });

      const T* k = l.buffer<const T>(CHUNK_STATE_K) + (at / H * p.keyHeads + key_head) * K;
      // A copy also for f32: columns of rows that lie a power of two apart share few cache sets.
      for (size_t i = 0; i < n; ++i) convert_row(k + i * p.keyHeads * K, K, k_rows + i * K);
      if constexpr (kChannels) {
        const ChannelGates channels{sum + at * K, sum_low ? sum_low + at * K : nullptr, H * K};
        for (size_t i = 0; i < n; ++i)
          channels.between(last, i, K, [&](size_t c, int m, vf32 decay) {
            float* row = k_rows + i * K + c;
            const vf32 key = m == kLanes ? load(row) : load_partial(row, m);
            store_up_to(row, round_to<T>(key * decay), m);
          });
        channels.decay(last, K, [&](size_t c, int, vf32 decay) { store(gate_scratch + c, decay); });
      }
      const vf32 decay = splat(kChannels ? 0.0f : gates.decay(last));
      for_tiles(
          K, [rows](size_t) { return rows; },
          [&](auto tile) {
            tile.accumulate(k_rows + tile.row, 1, K, gated + tile.column, kRows, n);
            tile.each([&](size_t c, size_t r, vf32 added) {
              float* s = state + c * kRows + r;
              store(s, fma(kChannels ? splat(gate_scratch[c]) : decay, load(s), added));
            });
          });
      if (snapshot && (chunk + 1) * BT % p.snapshotEvery == 0 && n == BT) {
        write_state(p, state, kRows, v0, rows, snapshot);
        snapshot += H * V * K;
      }
    }
    if (final_state) write_state(p, state, kRows, v0, rows, final_state + state_at);
  }
  return 0;
}

}  // namespace

MLXTS_KERNEL(chunk_state_f32, chunk_state<float, false>)
MLXTS_KERNEL(chunk_state_f16, chunk_state<f16, false>)
MLXTS_KERNEL(chunk_state_bf16, chunk_state<bf16, false>)
MLXTS_KERNEL(chunk_state_f32_channels, chunk_state<float, true>)
MLXTS_KERNEL(chunk_state_f16_channels, chunk_state<f16, true>)
MLXTS_KERNEL(chunk_state_bf16_channels, chunk_state<bf16, true>)
