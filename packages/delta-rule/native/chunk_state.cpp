// One threadgroup: a block of value rows of one head, chunk after chunk. The state is kept transposed, [K, rows], so
// that both products run over vectors of value rows.
#include "chunk.h"
#include "chunk_state.params.h"
#include "cpu_kernel.h"

using namespace mlxts;

namespace {

constexpr size_t kRows = 64;

template <typename T>
void chunk_state(const Launch& l) {
  const auto& p = l.args<ChunkStateParams>();
  const float* sum = l.buffer<const float>(CHUNK_STATE_SUM);
  const float* sum_low = l.buffer<const float>(CHUNK_STATE_SUM_LOW);
  const float* initial = l.buffer<const float>(CHUNK_STATE_INITIAL_STATE);
  float* final_state = l.buffer<float>(CHUNK_STATE_FINAL_STATE);
  const size_t K = p.keyDim, V = p.valueDim, H = p.heads, BT = p.chunkLength;
  const size_t chunks = (p.tokens + BT - 1) / BT;
  float* state = static_cast<float*>(l.scratch);  // [K, kRows]
  float* turned = state + K * kRows;              // [kRows, K]
  float* gated = turned + K * kRows;              // [BT, kRows]
  float* w_rows = gated + BT * kRows;             // [BT, K]
  float* k_rows = w_rows + BT * K;                // [BT, K]
  float* kept = k_rows + BT * K;                  // [BT]
  float* gate_scratch = kept + BT;
  for (uint64_t group = l.begin; group < l.end; ++group) {
    const size_t v0 = group % l.threadgroups[0] * kRows, rows = V - v0 < kRows ? V - v0 : kRows;
    const uint64_t outer = group / l.threadgroups[0];  // sequence and head
    const size_t state_at = (outer * V + v0) * K;
    if (initial)
      transpose_padded({initial + state_at, K}, rows, K, state, kRows);
    else
      memset(state, 0, K * kRows * sizeof(float));
    for (size_t chunk = 0; chunk < chunks; ++chunk) {
      const ChunkPlace place(p, outer * chunks + chunk, chunks);
      const size_t n = place.rows, at = place.token * H + place.head, last = n - 1;
      T* h = l.buffer<T>(CHUNK_STATE_H) + (((place.sequence * chunks + chunk) * H + place.head) * V + v0) * K;
      transpose(state, kRows, K, rows, turned, K);
      for (size_t r = 0; r < rows; ++r) narrow_row(h + r * K, turned + r * K, K);

      Gates gates;
      gates.gather(gate_scratch, BT, sum + at, sum_low ? sum_low + at : nullptr, H, n);
      gates.decays_to(last, kept);
      const T* w_act = l.buffer<const T>(CHUNK_STATE_W) + at * K;
      const WideRows w = widen_rows(w_act, H * K, n, K, w_rows);
      const T* u = l.buffer<const T>(CHUNK_STATE_U) + at * V + v0;
      T* v_new = l.buffer<T>(CHUNK_STATE_V_NEW) + at * V + v0;
      const size_t next = (chunk + 1) * BT < p.tokens ? BT * H : 0;  // rows of the next chunk; the last has none
      for_tiles(
          n, [rows](size_t) { return rows; },
          [&](auto tile) {
            if (next && tile.column == 0 && (chunk + 1) * BT + tile.row + tile.rows <= p.tokens) {
              const size_t ahead = tile.row * H + next;
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
              store(gated + i * kRows + r, round_to<T>(d * splat(kept[i])));
            });
          });

      const T* k = l.buffer<const T>(CHUNK_STATE_K) + (place.token * p.keyHeads + place.key_head) * K;
      // A copy also for f32: columns of rows that lie a power of two apart share few cache sets.
      for (size_t i = 0; i < n; ++i) widen_row(k_rows + i * K, k + i * p.keyHeads * K, K);
      const vf32 decay = splat(gates.decay(last));
      for_tiles(
          K, [rows](size_t) { return rows; },
          [&](auto tile) {
            tile.accumulate(k_rows + tile.row, 1, K, gated + tile.column, kRows, n);
            tile.each([&](size_t c, size_t r, vf32 added) {
              float* s = state + c * kRows + r;
              store(s, fma(decay, load(s), added));
            });
          });
    }
    if (final_state) transpose(state, kRows, K, rows, final_state + state_at, K);
  }
}

}  // namespace

MLXTS_KERNEL(chunk_state_f32, chunk_state<float>)
MLXTS_KERNEL(chunk_state_f16, chunk_state<f16>)
MLXTS_KERNEL(chunk_state_bf16, chunk_state<bf16>)
