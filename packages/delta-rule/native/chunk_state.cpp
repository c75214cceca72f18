// One threadgroup: a block of value rows of one head, chunk after chunk. The state is kept transposed, [K, rows], so
// that both products run over vectors of value rows.
#include "chunk_channels.h"
#include "chunk_state.params.h"

using namespace mlxts;

namespace {

constexpr size_t kRows = CHUNK_STATE_ROWS;

// A chunk of one head: its n tokens; u, v_new and h from the block's first value row on.
template <typename T>
struct Chunk {
  size_t n, next;  // tokens of this chunk and of the one after it
  const T *k, *w, *u;
  T *v_new, *h;
  size_t key_stride, w_stride, value_stride;  // from token to token
};

// h = round(S)
template <typename T>
void store_state(ChunkStateScratch scratch, size_t K, size_t rows, T* h) {
  transpose(scratch.state, kRows, K, rows, scratch.transposedState, K);
  for (size_t r = 0; r < rows; ++r) convert_row(scratch.transposedState + r * K, K, h + r * K);
}

// vNew = u − w Sᵀ, and `gated`: what of it is left at the chunk's end. The decays of a gate for each channel are in the
// keys.
template <bool kChannels, typename T>
void store_values(const ChunkStateParams& p, ChunkStateScratch scratch, Chunk<T> chunk, size_t rows) {
  const size_t K = p.keyDim, stride = chunk.value_stride;
  const WideRows w = widen_rows(chunk.w, chunk.w_stride, chunk.n, K, scratch.w, K);
  for_tiles(
      chunk.n, [rows](size_t) { return rows; },
      [&](auto tile) {
        if (tile.column == 0 && tile.row + tile.rows <= chunk.next) {
          const size_t ahead = tile.row + p.chunkLength;
          prefetch_rows(chunk.w + ahead * chunk.w_stride, chunk.w_stride * sizeof(T), tile.rows, K * sizeof(T));
          prefetch_rows(chunk.u + ahead * stride, stride * sizeof(T), tile.rows, rows * sizeof(T));
        }
        tile.accumulate(w.data + tile.row * w.stride, w.stride, 1, scratch.state + tile.column, kRows, K);
        tile.each([&](size_t i, size_t r, vf32 predicted) {
          const size_t at = i * stride + r;
          const bool full = r + kLanes <= rows;
          const int m = full ? kLanes : rows - r;
          const vf32 d = (full ? load(chunk.u + at) : load_partial(chunk.u + at, m)) - predicted;
          if (full)
            store(chunk.v_new + at, d);
          else
            store_partial(chunk.v_new + at, d, m);
          const vf32 left = kChannels ? d : d * splat(scratch.decaysToEnd[i]);
          store(scratch.gated + i * kRows + r, round_to<T>(left));
        });
      });
}

// Keys as they decay to the chunk's end, round(k_i exp(G_last − G_i)), and exp(G_last).
template <typename T>
void decay_keys_to_end(ChunkStateScratch scratch, size_t n, size_t K, CumulativeGateTensors G) {
  for (size_t i = 0; i < n; ++i)
    decays_between(G, n - 1, i, K, [&](size_t c, int m, vf32 decay) {
      float* row = scratch.keys + i * K + c;
      const vf32 key = m == kLanes ? load(row) : load_partial(row, m);
      store_up_to(row, round_to<T>(key * decay), m);
    });
  decays_of(G, n - 1, K, [&](size_t c, int, vf32 decay) { store(scratch.keyDecays + c, decay); });
}

// S ← exp(G_last) S + gatedᵀ k; `decay` is that of one gate a head.
template <bool kChannels>
void update_state(ChunkStateScratch scratch, size_t n, size_t K, size_t rows, float decay) {
  for_tiles(
      K, [rows](size_t) { return rows; },
      [&](auto tile) {
        tile.accumulate(scratch.keys + tile.row, 1, K, scratch.gated + tile.column, kRows, n);
        tile.each([&](size_t c, size_t r, vf32 added) {
          float* s = scratch.state + c * kRows + r;
          store(s, fma(splat(kChannels ? scratch.keyDecays[c] : decay), load(s), added));
        });
      });
}

template <bool kChannels, typename T>
void advance(const ChunkStateParams& p, ChunkStateScratch scratch, Chunk<T> chunk, CumulativeGateTensors gates,
             size_t rows) {
  const size_t n = chunk.n, K = p.keyDim;
  store_state(scratch, K, rows, chunk.h);
  const CumulativeGates G{scratch.cumulativeGateHigh, scratch.cumulativeGateLow};
  if constexpr (!kChannels) {
    G.read(gates, n, p.chunkLength);
    G.decays_to(n - 1, scratch.decaysToEnd);
  }
  store_values<kChannels>(p, scratch, chunk, rows);
  // A copy also of f32: columns of rows that lie a power of two apart share few cache sets.
  for (size_t i = 0; i < n; ++i) convert_row(chunk.k + i * chunk.key_stride, K, scratch.keys + i * K);
  if constexpr (kChannels) decay_keys_to_end<T>(scratch, n, K, gates);
  update_state<kChannels>(scratch, n, K, rows, kChannels ? 0.0f : G.decay(n - 1));
}

// kChannels: G has a gate for each channel of k.
template <typename T, bool kChannels>
int32_t chunk_state(const Launch& l) {
  const auto& p = l.args<ChunkStateParams>();
  const Indices cu_seqlens = l.indices(CHUNK_STATE_CU_SEQLENS);
  if (!packed_right(cu_seqlens, p.sequences, p.tokens, l, CHUNK_STATE_FAULT_CU_SEQLENS)) return 1;
  const float* initial = l.buffer<const float>(CHUNK_STATE_INITIAL_STATE);
  float* final_state = l.buffer<float>(CHUNK_STATE_FINAL_STATE);
  const size_t K = p.keyDim, V = p.valueDim, H = p.heads, BT = p.chunkLength, gates = kChannels ? K : 1;
  const CumulativeGateTensors G{l.buffer<const float>(CHUNK_STATE_CUMULATIVE_GATE),
                                l.buffer<const float>(CHUNK_STATE_CUMULATIVE_GATE_LOW), H * gates};
  const auto scratch = scratch_of(l, p);
  for (uint64_t group = l.begin; group < l.end; ++group) {
    const size_t v0 = group % l.threadgroups[0] * kRows, rows = V - v0 < kRows ? V - v0 : kRows;
    const size_t head = group / l.threadgroups[0] % H, index = group / l.threadgroups[0] / H;
    const size_t key_head = key_head_of(head, p.headsPerKey, p.keyHeads), state_at = (index * H + head) * V * K;
    const Sequence sequence = sequence_at(cu_seqlens, index, p.tokens);
    const Chunks chunks = chunks_in(p, bool(cu_seqlens), index, sequence);
    if (initial)
      read_state(p, initial + state_at, v0, rows, scratch.state, kRows);
    else
      memset(scratch.state, 0, K * kRows * sizeof(float));
    float* snapshot = l.buffer<float>(CHUNK_STATE_SNAPSHOTS);
    if (snapshot)
      snapshot += (first_snapshot(cu_seqlens, index, sequence.tokens, p.tokens, p.snapshotEvery) * H + head) * V * K;
    for (size_t i = 0; size_t n = chunk_rows(chunks.tokens, i, BT); ++i) {
      const size_t token = sequence.begin + i * BT, at = token * H + head;
      const Chunk<T> chunk{n,
                           chunk_rows(chunks.tokens, i + 1, BT),
                           l.buffer<const T>(CHUNK_STATE_K) + (token * p.keyHeads + key_head) * K,
                           l.buffer<const T>(CHUNK_STATE_W) + at * K,
                           l.buffer<const T>(CHUNK_STATE_U) + at * V + v0,
                           l.buffer<T>(CHUNK_STATE_V_NEW) + at * V + v0,
                           l.buffer<T>(CHUNK_STATE_H) + (((chunks.slot + i) * H + head) * V + v0) * K,
                           p.keyHeads * K,
                           H * K,
                           H * V};
      advance<kChannels>(p, scratch, chunk, G.from(at * gates), rows);
      if (snapshot && n == BT && (i + 1) * BT % p.snapshotEvery == 0) {
        write_state(p, scratch.state, kRows, v0, rows, snapshot);
        snapshot += H * V * K;
      }
    }
    if (final_state) write_state(p, scratch.state, kRows, v0, rows, final_state + state_at);
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
