// One threadgroup: 32 value rows of the state of one head, chunk after chunk. A simdgroup keeps eight of them in
// registers from the first chunk to the last and shares nothing of them: w, then k, go through two tiles of threadgroup
// memory in turn, of which one is filled while the other is used.
#include "channels_metal.h"
#include "chunk_state.params.h"

using namespace metal;
using namespace mlxts;

constant constexpr uint kThreads = CHUNK_STATE_ROWS / 8 * kSimd;

// A tile: rows `row` … of w, then of k, of a chunk.
struct Tile {
  uint chunk, row;
  bool keys;
};

METAL_FUNC Tile tile_after(Tile t, uint rows, uint tileRows) {
  if (t.row + tileRows < rows) return {t.chunk, t.row + tileRows, t.keys};
  return {t.chunk + t.keys, 0, !t.keys};
}

METAL_FUNC uint rows_of(uint chunk, uint length, uint tokens) { return min(length, tokens - chunk * length); }

// A lane's part of the state, as far as keys go.
template <uint KeyBlocks>
METAL_FUNC void store_state(thread Block* state, uint keyBlocks, device float* to, uint stride) {
  MLXTS_UNROLL
  for (uint b = 0; b < KeyBlocks; ++b) {
    if (b >= keyBlocks) continue;
    for (uint e = 0; e < 2; ++e) to[(b * 8 + e) * stride] = state[b].thread_elements()[e];
  }
}

// With `Channels` each channel of a key has its own gate: keys are decayed on their way into a tile, not the values.
template <typename T, uint KeyBlocks, bool Channels>
kernel void chunk_state(device const T* k [[buffer(CHUNK_STATE_K)]], device const T* w [[buffer(CHUNK_STATE_W)]],
                        device const T* u [[buffer(CHUNK_STATE_U)]],
                        device const float* sum [[buffer(CHUNK_STATE_SUM)]],
                        device const float* sumLow [[buffer(CHUNK_STATE_SUM_LOW)]],
                        device const Index* cuSeqlens [[buffer(CHUNK_STATE_CU_SEQLENS)]],
                        device const float* initialState [[buffer(CHUNK_STATE_INITIAL_STATE)]],
                        device T* h [[buffer(CHUNK_STATE_H)]], device T* vNew [[buffer(CHUNK_STATE_V_NEW)]],
                        device float* finalState [[buffer(CHUNK_STATE_FINAL_STATE)]],
                        device float* snapshots [[buffer(CHUNK_STATE_SNAPSHOTS)]],
                        constant ChunkStateParams& p [[buffer(CHUNK_STATE_PARAMS)]],
                        device MlxtsFault* fault [[buffer(CHUNK_STATE_FAULT)]],
                        threadgroup float* memory [[threadgroup(0)]], uint3 group [[threadgroup_position_in_grid]],
                        uint index [[thread_index_in_threadgroup]], uint lane [[thread_index_in_simdgroup]],
                        uint simdgroup [[simdgroup_index_in_threadgroup]]) {
  constexpr uint kWidth = KeyBlocks * 8, kStride = kWidth + 16 / sizeof(T), kPieces = kWidth / 4;
  constexpr uint kTileRows = CHUNK_STATE_TILE_BYTES / sizeof(T) / (kWidth <= 64 ? 64 : kWidth <= 128 ? 128 : 256);
  constexpr uint kAhead = kTileRows * kPieces / kThreads;
  static_assert(kTileRows * kStride * sizeof(T) <= CHUNK_STATE_BUFFER_BYTES, "a tile must fit its buffer");
  static_assert(kThreads % kPieces == 0, "a thread has the same columns of each row");
  const bool packed = p.present & CHUNK_STATE_HAS_CU_SEQLENS, pair = p.present & CHUNK_STATE_HAS_SUM_LOW;
  const Indices cuts = {cuSeqlens, packed};
  Sequence sequence = sequence_at(cuts, group.z, p.tokens);
  if (packed) {
    // No sequence begins behind the tokens: that stands for a wrong cuSeqlens.
    const bool right = packed_right(cuts, p.sequences, p.tokens, {fault, lane}, CHUNK_STATE_FAULT_CU_SEQLENS);
    const uint2 first = threadgroup_first(uint2(right ? sequence.begin : p.tokens + 1, sequence.tokens),
                                          (threadgroup uint*)memory, index);
    sequence = {first.x, first.y};
    if (sequence.begin > p.tokens) return;
  }
  const uint K = p.keyDim, V = p.valueDim, H = p.heads, length = p.chunkLength, keyBlocks = K / 8;
  const uint head = group.y, keyHead = key_head_of(head, p.headsPerKey, p.keyHeads);
  const uint tokens = chunked_tokens(sequence.tokens, length, p.lastTokens), chunks = chunks_of(tokens, length);
  const uint slot = first_slot(packed, group.z, sequence.begin, p.tokens, length);
  const BlockLane at = block_lane(lane);
  const uint v = group.x * CHUNK_STATE_ROWS + simdgroup * 8 + at.row;  // this lane's row of the state
  const bool used = group.x * CHUNK_STATE_ROWS + simdgroup * 8 < V;
  // Where this lane's first element lies in a state of a head.
  const ulong own = ulong(v) * p.rowStride + at.column * p.columnStride;
  const ulong stateRow = (ulong(group.z) * H + head) * V * K + own;
  // What each lane leaves here only it takes back: vNew times the gate, rounded.
  threadgroup vec<T, 2>* gated =
      (threadgroup vec<T, 2>*)(memory + CHUNK_STATE_BUFFER_BYTES / 2) + simdgroup * (length / 8) * kSimd + lane;
  // [K], with `Channels`: exp(G_last) of the chunk.
  threadgroup float* decays = memory + CHUNK_STATE_BUFFER_BYTES / 2 + length * CHUNK_STATE_ROWS * sizeof(T) / 4;
  const uint column = index % kPieces * 4;  // of a row of a tile, this thread's first

  Block state[KeyBlocks];
  MLXTS_UNROLL
  for (uint b = 0; b < KeyBlocks; ++b) {
    state[b] = block(0.0f, 0.0f);
    if (b < keyBlocks && v < V && (p.present & CHUNK_STATE_HAS_INITIAL_STATE))
      state[b] =
          block(initialState[stateRow + b * 8 * p.columnStride], initialState[stateRow + (b * 8 + 1) * p.columnStride]);
  }

  Tile now = {0, 0, false}, next = now;
  for (uint turn = 0; now.chunk < chunks; ++turn) {
    // The next tile is on its way from device memory while this one is used; before the first there is none to use.
    vec<T, 4> ahead[kAhead];
    const uint nextChunkRows = next.chunk < chunks ? rows_of(next.chunk, length, tokens) : 0;
    const uint nextRows = next.chunk < chunks ? min(kTileRows, nextChunkRows - next.row) : 0;
    const ulong nextToken = ulong(sequence.begin) + next.chunk * length + next.row;
    device const T* from = next.keys ? k + (nextToken * p.keyHeads + keyHead) * K : w + (nextToken * H + head) * K;
    const uint stride = (next.keys ? p.keyHeads : H) * K;
    const ChannelGates gates = {sum + (nextToken * H + head) * K, sumLow + (nextToken * H + head) * K, pair, H * K};
    float4 last = float4(0.0f), lastLow = last;
    if (Channels && next.keys && nextRows > 0 && column < K) {
      last = high4(gates, nextChunkRows - 1 - next.row, column);
      lastLow = low4(gates, nextChunkRows - 1 - next.row, column);
      if (next.row == 0 && index < kPieces) store4_aligned(decays + column, exp4_pair(last, lastLow));
    }
    MLXTS_UNROLL
    for (uint i = 0; i < kAhead; ++i) {
      const uint row = (index + i * kThreads) / kPieces;
      ahead[i] = vec<T, 4>(T(0.0f));
      if (row < nextRows && column < K) {
        device const T* four = from + row * stride + column;
        ahead[i] = vec<T, 4>(four[0], four[1], four[2], four[3]);
        if (Channels && next.keys) {
          const float4 kept = exp4((last - high4(gates, row, column)) + (lastLow - low4(gates, row, column)));
          const float4 key = load4(four) * kept;
          ahead[i] = vec<T, 4>(T(key.x), T(key.y), T(key.z), T(key.w));
        }
      }
    }

    if (turn > 0 && used) {
      threadgroup const T* tile = (threadgroup const T*)(memory + (turn & 1) * (CHUNK_STATE_BUFFER_BYTES / 4));
      const uint rows = rows_of(now.chunk, length, tokens), end = min(kTileRows, rows - now.row);
      const ulong cell = (ulong(sequence.begin) + now.chunk * length) * H + head;
      const float last = Channels ? 0.0f : sum[cell + (rows - 1) * H];
      const float lastLow = !Channels && pair ? sumLow[cell + (rows - 1) * H] : 0.0f;
      if (now.keys) {
        // S ← exp(G_last) S + Σ gated_i k_iᵀ
        const float decay = exp_pair(last, lastLow);
        if (now.row == 0) {
          MLXTS_UNROLL
          for (uint b = 0; b < KeyBlocks; ++b) {
            if (Channels) {
              if (b < keyBlocks) state[b] = scaled_columns(state[b], decays + b * 8 + at.column);
            } else {
              state[b] = scaled(state[b], decay);
            }
          }
        }
        for (uint i = 0; i < end; i += 8) {
          const vec<T, 2> two = gated[(now.row + i) / 8 * kSimd];
          const Block values = block(float(two[0]), float(two[1]));
          MLXTS_UNROLL
          for (uint b = 0; b < KeyBlocks; b += 4) {
            if (b >= keyBlocks) continue;
            MLXTS_UNROLL
            for (uint j = b; j < b + 4; ++j)
              multiply_add(state[j], values, load_block(tile + i * kStride + j * 8, kStride, at));
          }
        }
        const uint done = now.chunk * length + rows;
        if ((p.present & CHUNK_STATE_HAS_SNAPSHOTS) && now.row + end == rows && done % p.snapshotEvery == 0 && v < V) {
          const uint place =
              first_snapshot(cuts, group.z, sequence.tokens, p.tokens, p.snapshotEvery) + done / p.snapshotEvery - 1;
          store_state<KeyBlocks>(state, keyBlocks, snapshots + (ulong(place) * H + head) * V * K + own, p.columnStride);
        }
      } else {
        if (now.row == 0 && v < V) {
          device T* to = h + (((ulong(slot) + now.chunk) * H + head) * V + v) * K + at.column;
          MLXTS_UNROLL
          for (uint b = 0; b < KeyBlocks; ++b) {
            if (b >= keyBlocks) continue;
            for (uint e = 0; e < 2; ++e) to[b * 8 + e] = T(state[b].thread_elements()[e]);
          }
        }
        for (uint i = 0; i < end; i += 8) {
          // dᵀ = uᵀ − S wᵀ, a column for each of eight tokens; four sums, for products that need not wait.
          float value[2], kept[2];
          for (uint e = 0; e < 2; ++e) {
            const uint row = now.row + i + at.column + e;
            const bool real = row < rows && v < V;
            value[e] = real ? float(u[(cell + row * H) * V + v]) : 0.0f;
            kept[e] = real ? 1.0f : 0.0f;
            if (Channels || !real) continue;
            const float low = pair ? lastLow - sumLow[cell + row * H] : 0.0f;
            kept[e] = precise::exp((last - sum[cell + row * H]) + low);
          }
          Block sums[4];
          MLXTS_UNROLL
          for (uint j = 0; j < 4; ++j) sums[j] = block(0.0f, 0.0f);
          MLXTS_UNROLL
          for (uint b = 0; b < KeyBlocks; b += 4) {
            if (b >= keyBlocks) continue;
            MLXTS_UNROLL
            for (uint j = 0; j < 4; ++j)
              multiply_add(sums[j], state[b + j], load_transposed(tile + i * kStride + (b + j) * 8, kStride, at));
          }
          vec<T, 2> two;
          for (uint e = 0; e < 2; ++e) {
            const uint row = now.row + i + at.column + e;
            const float d = value[e] - ((sums[0].thread_elements()[e] + sums[1].thread_elements()[e]) +
                                        (sums[2].thread_elements()[e] + sums[3].thread_elements()[e]));
            if (row < rows && v < V) vNew[(cell + row * H) * V + v] = T(d);
            two[e] = row < rows ? T(d * kept[e]) : T(0.0f);
          }
          gated[(now.row + i) / 8 * kSimd] = two;
        }
      }
    }

    threadgroup T* to = (threadgroup T*)(memory + (~turn & 1) * (CHUNK_STATE_BUFFER_BYTES / 4));
    MLXTS_UNROLL
    for (uint i = 0; i < kAhead; ++i) {
      const uint row = (index + i * kThreads) / kPieces;
      if (row < (nextRows + 7) / 8 * 8) *(threadgroup vec<T, 4>*)(to + row * kStride + column) = ahead[i];
    }
    threadgroup_barrier(mem_flags::mem_threadgroup);
    now = next;
    if (next.chunk < chunks) next = tile_after(next, nextChunkRows, kTileRows);
  }

  if ((p.present & CHUNK_STATE_HAS_FINAL_STATE) && v < V)
    store_state<KeyBlocks>(state, keyBlocks, finalState + stateRow, p.columnStride);
}

#define CHUNK_STATE(name, T, K, suffix, channels)                      \
  template[[host_name("chunk_state_" name "_k" #K suffix)]] [[kernel]] \
  decltype(chunk_state<T, K / 8, channels>) chunk_state<T, K / 8, channels>;
#define CHUNK_STATE_KEYS(name, T)              \
  CHUNK_STATE(name, T, 64, "", false)          \
  CHUNK_STATE(name, T, 128, "", false)         \
  CHUNK_STATE(name, T, 256, "", false)         \
  CHUNK_STATE(name, T, 64, "_channels", true)  \
  CHUNK_STATE(name, T, 128, "_channels", true) \
  CHUNK_STATE(name, T, 256, "_channels", true)
CHUNK_STATE_KEYS("f32", float)
CHUNK_STATE_KEYS("f16", half)
CHUNK_STATE_KEYS("bf16", bfloat)
