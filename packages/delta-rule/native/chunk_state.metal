// One threadgroup: 32 value rows of the state of one head, chunk after chunk. A simdgroup keeps eight of them in
// registers from the first chunk to the last and shares nothing of them: w, then k, go through two tiles of threadgroup
// memory in turn, of which one is filled while the other is used.
#include "channels_metal.h"
#include "chunk_state.params.h"

using namespace metal;
using namespace mlxts;

// A tile in threadgroup memory: rows of up to KeyBlocks · 8 elements. Its threads have pieces of four neighbors each,
// the same columns of `ahead` rows.
template <typename T, uint KeyBlocks>
struct TileOf {
  enum : uint {
    width = KeyBlocks * 8,
    stride = width + CHUNK_STATE_GAP_BYTES / sizeof(T),
    rows = CHUNK_STATE_TILE_BYTES / sizeof(T) / width,
    pieces = width / 4,
    ahead = rows * pieces / CHUNK_STATE_THREADS,
  };
  static_assert(rows * stride * sizeof(T) <= CHUNK_STATE_BUFFER_BYTES, "a tile must fit its buffer");
  static_assert(CHUNK_STATE_THREADS % pieces == 0, "a thread has the same columns of each row");
};

// What a tile holds: rows from `row` on of w, then of k, of a chunk.
struct Tile {
  uint chunk, row;
  bool keys;
};

METAL_FUNC Tile tile_after(Tile t, uint rows, uint tileRows) {
  if (t.row + tileRows < rows) return {t.chunk, t.row + tileRows, t.keys};
  return {t.chunk + t.keys, 0, !t.keys};
}

// One head of one sequence in device memory, from its first token, or h from its first chunk, on; tokens are
// `keyStride`, `wStride` and `valueStride` apart, chunks of h `hStride`.
template <typename T>
struct Head {
  device const T* k;
  device const T* w;
  device const T* u;
  device T* vNew;
  device T* h;
  CumulativeGateTensors G;
  uint keyStride, wStride, valueStride, hStride;
  uint keyBlocks, K, V;
  uint length;  // of a chunk
};

// A thread: its lane's row of the state, which may lie behind the last, and the first column of its pieces of a tile.
struct StateThread {
  uint index;
  BlockLane at;
  uint v, column;
};

// A lane's part of the state, as far as keys go; its elements are `stride` apart.
template <uint KeyBlocks>
METAL_FUNC void load_state(thread Block* state, uint keyBlocks, device const float* from, uint stride) {
  MLXTS_UNROLL
  for (uint b = 0; b < KeyBlocks; ++b)
    if (b < keyBlocks) state[b] = block(from[b * 8 * stride], from[(b * 8 + 1) * stride]);
}

template <uint KeyBlocks, typename To>
METAL_FUNC void store_state(thread Block* state, uint keyBlocks, device To* to, uint stride) {
  MLXTS_UNROLL
  for (uint b = 0; b < KeyBlocks; ++b) {
    if (b >= keyBlocks) continue;
    for (uint e = 0; e < 2; ++e) to[(b * 8 + e) * stride] = To(state[b].thread_elements()[e]);
  }
}

// Loads a thread's pieces of a tile; `rows` are those of its chunk. With `Channels` keys are decayed to the chunk's end
// on the way, and the decays of the whole chunk are left in `keyDecays`.
template <typename T, uint KeyBlocks, bool Channels>
METAL_FUNC void load_tile(thread vec<T, 4>* ahead, Head<T> head, Tile tile, uint rows, threadgroup float* keyDecays,
                          StateThread t) {
  constexpr uint kPieces = TileOf<T, KeyBlocks>::pieces, kRows = TileOf<T, KeyBlocks>::rows;
  const uint end = rows > 0 ? min(kRows, rows - tile.row) : 0, column = t.column;
  const ulong token = ulong(tile.chunk) * head.length + tile.row;
  const uint stride = tile.keys ? head.keyStride : head.wStride;
  device const T* from = (tile.keys ? head.k : head.w) + token * stride;
  const CumulativeGateTensors G = gates_from(head.G, token * head.G.stride);
  float4 last = float4(0.0f), lastLow = last;
  if (Channels && tile.keys && end > 0 && column < head.K) {
    last = high4(G, rows - 1 - tile.row, column);
    lastLow = low4(G, rows - 1 - tile.row, column);
    if (tile.row == 0 && t.index < kPieces) store4_aligned(keyDecays + column, exp4_of_sum(last, lastLow));
  }
  MLXTS_UNROLL
  for (uint i = 0; i < TileOf<T, KeyBlocks>::ahead; ++i) {
    const uint row = (t.index + i * CHUNK_STATE_THREADS) / kPieces;
    ahead[i] = vec<T, 4>(T(0.0f));
    if (row >= end || column >= head.K) continue;
    device const T* four = from + row * stride + column;
    ahead[i] = vec<T, 4>(four[0], four[1], four[2], four[3]);
    if (Channels && tile.keys) {
      const float4 decay = exp4((last - high4(G, row, column)) + (lastLow - low4(G, row, column)));
      const float4 key = load4(four) * decay;
      ahead[i] = vec<T, 4>(T(key.x), T(key.y), T(key.z), T(key.w));
    }
  }
}

// Stores the pieces in threadgroup memory, those of zeros up to a multiple of eight rows, too.
template <typename T, uint KeyBlocks>
METAL_FUNC void store_tile(threadgroup T* to, thread vec<T, 4>* ahead, Tile tile, uint rows, StateThread t) {
  constexpr uint kRows = TileOf<T, KeyBlocks>::rows;
  const uint end = rows > 0 ? min(kRows, rows - tile.row) : 0;
  MLXTS_UNROLL
  for (uint i = 0; i < TileOf<T, KeyBlocks>::ahead; ++i) {
    const uint row = (t.index + i * CHUNK_STATE_THREADS) / TileOf<T, KeyBlocks>::pieces;
    if (row < (end + 7) / 8 * 8)
      *(threadgroup vec<T, 4>*)(to + row * TileOf<T, KeyBlocks>::stride + t.column) = ahead[i];
  }
}

// vNew = u − w Sᵀ of a tile of w, transposed: a column for each of eight tokens. `gated` keeps what of it is left at
// the chunk's end, rounded; with `Channels` its decay is in the keys.
template <typename T, uint KeyBlocks, bool Channels>
METAL_FUNC void store_values(Head<T> head, Tile tile, uint rows, thread Block* state, threadgroup const T* w,
                             threadgroup vec<T, 2>* gated, StateThread t) {
  constexpr uint kStride = TileOf<T, KeyBlocks>::stride, kRows = TileOf<T, KeyBlocks>::rows;
  const uint end = min(kRows, rows - tile.row);
  const ulong token = ulong(tile.chunk) * head.length, first = token * head.valueStride + t.v;
  const CumulativeGateTensors G = gates_from(head.G, token * head.G.stride);
  const float last = Channels ? 0.0f : G.high[(rows - 1) * G.stride];
  const float lastLow = !Channels && G.carriesLow ? G.low[(rows - 1) * G.stride] : 0.0f;
  for (uint i = 0; i < end; i += 8) {
    float value[2], decay[2];
    for (uint e = 0; e < 2; ++e) {
      const uint row = tile.row + i + t.at.column + e;
      const bool real = row < rows && t.v < head.V;
      value[e] = real ? float(head.u[first + row * head.valueStride]) : 0.0f;
      decay[e] = real ? 1.0f : 0.0f;
      if (Channels || !real) continue;
      const float low = G.carriesLow ? lastLow - G.low[row * G.stride] : 0.0f;
      decay[e] = precise::exp((last - G.high[row * G.stride]) + low);
    }
    Block sums[4];  // four, for products that need not wait
    MLXTS_UNROLL
    for (uint j = 0; j < 4; ++j) sums[j] = block(0.0f, 0.0f);
    MLXTS_UNROLL
    for (uint b = 0; b < KeyBlocks; b += 4) {
      if (b >= head.keyBlocks) continue;
      MLXTS_UNROLL
      for (uint j = 0; j < 4; ++j)
        multiply_add(sums[j], state[b + j], load_transposed(w + i * kStride + (b + j) * 8, kStride, t.at));
    }
    vec<T, 2> two;
    for (uint e = 0; e < 2; ++e) {
      const uint row = tile.row + i + t.at.column + e;
      const float d = value[e] - ((sums[0].thread_elements()[e] + sums[1].thread_elements()[e]) +
                                  (sums[2].thread_elements()[e] + sums[3].thread_elements()[e]));
      if (row < rows && t.v < head.V) head.vNew[first + row * head.valueStride] = T(d);
      two[e] = row < rows ? T(d * decay[e]) : T(0.0f);
    }
    gated[(tile.row + i) / 8 * kSimd] = two;
  }
}

// S ← exp(G_last) S before a chunk's first keys.
template <typename T, uint KeyBlocks, bool Channels>
METAL_FUNC void decay_state(thread Block* state, Head<T> head, Tile tile, uint rows, threadgroup const float* keyDecays,
                            StateThread t) {
  const ulong last = (ulong(tile.chunk) * head.length + rows - 1) * head.G.stride;
  const float decay = Channels ? 0.0f : exp_of_sum(head.G.high[last], head.G.carriesLow ? head.G.low[last] : 0.0f);
  MLXTS_UNROLL
  for (uint b = 0; b < KeyBlocks; ++b) {
    if (!Channels)
      state[b] = scaled(state[b], decay);
    else if (b < head.keyBlocks)
      state[b] = scaled_columns(state[b], keyDecays + b * 8 + t.at.column);
  }
}

// S ← S + Σ gated_i k_iᵀ of a tile of k.
template <typename T, uint KeyBlocks>
METAL_FUNC void add_keys(thread Block* state, uint keyBlocks, Tile tile, uint rows, threadgroup const T* keys,
                         threadgroup const vec<T, 2>* gated, StateThread t) {
  constexpr uint kStride = TileOf<T, KeyBlocks>::stride, kRows = TileOf<T, KeyBlocks>::rows;
  const uint end = min(kRows, rows - tile.row);
  for (uint i = 0; i < end; i += 8) {
    const vec<T, 2> two = gated[(tile.row + i) / 8 * kSimd];
    const Block values = block(float(two[0]), float(two[1]));
    MLXTS_UNROLL
    for (uint b = 0; b < KeyBlocks; b += 4) {
      if (b >= keyBlocks) continue;
      MLXTS_UNROLL
      for (uint j = b; j < b + 4; ++j)
        multiply_add(state[j], values, load_block(keys + i * kStride + j * 8, kStride, t.at));
    }
  }
}

// A tile of w leads to h and vNew, one of k to the next state.
template <typename T, uint KeyBlocks, bool Channels>
METAL_FUNC void use_tile(thread Block* state, Head<T> head, Tile tile, uint rows, threadgroup const T* content,
                         threadgroup const float* keyDecays, threadgroup vec<T, 2>* gated, StateThread t) {
  const bool first = tile.row == 0;
  if (tile.keys) {
    if (first) decay_state<T, KeyBlocks, Channels>(state, head, tile, rows, keyDecays, t);
    add_keys<T, KeyBlocks>(state, head.keyBlocks, tile, rows, content, gated, t);
  } else {
    device T* h = head.h + tile.chunk * ulong(head.hStride) + t.v * head.K + t.at.column;
    if (first && t.v < head.V) store_state<KeyBlocks>(state, head.keyBlocks, h, 1);
    store_values<T, KeyBlocks, Channels>(head, tile, rows, state, content, gated, t);
  }
}

// The sequence of a threadgroup; a packed one that begins behind the tokens where cuSeqlens is wrong, which is reported.
METAL_FUNC Sequence threadgroup_sequence(constant ChunkStateParams& p, Indices cuSeqlens, uint sequence,
                                         FaultSearch search, threadgroup uint* agreed, uint index) {
  const Sequence at = sequence_at(cuSeqlens, sequence, p.tokens);
  if (!cuSeqlens) return at;
  const bool right = packed_right(cuSeqlens, p.sequences, p.tokens, search, CHUNK_STATE_FAULT_CU_SEQLENS);
  const uint2 first = threadgroup_first(uint2(right ? at.begin : p.tokens + 1, at.tokens), agreed, index);
  return {first.x, first.y};
}

// With `Channels` each channel of a key has its own gate: keys are decayed on their way into a tile, not the values.
template <typename T, uint KeyBlocks, bool Channels>
kernel void chunk_state(device const T* k [[buffer(CHUNK_STATE_K)]], device const T* w [[buffer(CHUNK_STATE_W)]],
                        device const T* u [[buffer(CHUNK_STATE_U)]],
                        device const float* G [[buffer(CHUNK_STATE_CUMULATIVE_GATE)]],
                        device const float* GLow [[buffer(CHUNK_STATE_CUMULATIVE_GATE_LOW)]],
                        device const Index* cuSeqlens [[buffer(CHUNK_STATE_CU_SEQLENS)]],
                        device const float* initialState [[buffer(CHUNK_STATE_INITIAL_STATE)]],
                        device T* h [[buffer(CHUNK_STATE_H)]], device T* vNew [[buffer(CHUNK_STATE_V_NEW)]],
                        device float* finalState [[buffer(CHUNK_STATE_FINAL_STATE)]],
                        device float* snapshots [[buffer(CHUNK_STATE_SNAPSHOTS)]],
                        constant ChunkStateParams& p [[buffer(CHUNK_STATE_PARAMS)]],
                        device MlxtsFault* fault [[buffer(CHUNK_STATE_FAULT)]],
                        threadgroup uchar* memory [[threadgroup(0)]], uint3 group [[threadgroup_position_in_grid]],
                        uint index [[thread_index_in_threadgroup]], uint lane [[thread_index_in_simdgroup]],
                        uint simdgroup [[simdgroup_index_in_threadgroup]]) {
  const auto scratch = scratch_of(memory, p);
  const Indices cuts = {cuSeqlens, bool(p.present & CHUNK_STATE_HAS_CU_SEQLENS)};
  const Sequence sequence = threadgroup_sequence(p, cuts, group.z, {fault, lane}, scratch.place, index);
  if (cuts && sequence.begin > p.tokens) return;
  const Chunks chunks = chunks_in(p, bool(cuts), group.z, sequence);
  const uint K = p.keyDim, V = p.valueDim, H = p.heads, gates = Channels ? K : 1, keyBlocks = K / 8;
  const ulong cell = ulong(sequence.begin) * H + group.y;
  const ulong keyCell = ulong(sequence.begin) * p.keyHeads + key_head_of(group.y, p.headsPerKey, p.keyHeads);
  const bool carriesLow = p.present & CHUNK_STATE_HAS_CUMULATIVE_GATE_LOW;
  const Head<T> head = {k + keyCell * K,
                        w + cell * K,
                        u + cell * V,
                        vNew + cell * V,
                        h + (ulong(chunks.slot) * H + group.y) * V * K,
                        {G + cell * gates, GLow + cell * gates, carriesLow, H * gates},
                        p.keyHeads * K,
                        H * K,
                        H * V,
                        H * V * K,
                        keyBlocks,
                        K,
                        V,
                        p.chunkLength};
  const BlockLane at = block_lane(lane);
  const uint firstRow = group.x * CHUNK_STATE_ROWS + simdgroup * 8;
  const StateThread t = {index, at, firstRow + at.row, index % TileOf<T, KeyBlocks>::pieces * 4};
  // Where this lane's first element lies in a state of a head.
  const ulong own = ulong(t.v) * p.rowStride + at.column * p.columnStride;
  const ulong stateAt = (ulong(group.z) * H + group.y) * V * K + own;
  const bool real = t.v < V;
  // Each lane takes back what it has left here itself.
  threadgroup vec<T, 2>* gated = (threadgroup vec<T, 2>*)scratch.gated + simdgroup * (p.chunkLength / 8) * kSimd + lane;

  Block state[KeyBlocks];
  MLXTS_UNROLL
  for (uint b = 0; b < KeyBlocks; ++b) state[b] = block(0.0f, 0.0f);
  if (real && (p.present & CHUNK_STATE_HAS_INITIAL_STATE))
    load_state<KeyBlocks>(state, keyBlocks, initialState + stateAt, p.columnStride);

  const uint count = chunks_of(chunks.tokens, p.chunkLength);
  Tile now = {0, 0, false}, next = now;
  for (uint turn = 0; now.chunk < count; ++turn) {
    // The next tile is on its way from device memory while this one is used; before the first there is none to use.
    vec<T, 4> ahead[TileOf<T, KeyBlocks>::ahead];
    const uint nextRows = chunk_rows(chunks.tokens, next.chunk, p.chunkLength);
    load_tile<T, KeyBlocks, Channels>(ahead, head, next, nextRows, scratch.keyDecays, t);

    if (turn > 0 && firstRow < V) {
      threadgroup const T* tile = (threadgroup const T*)(scratch.tiles + (turn & 1) * CHUNK_STATE_BUFFER_BYTES);
      const uint rows = chunk_rows(chunks.tokens, now.chunk, p.chunkLength);
      use_tile<T, KeyBlocks, Channels>(state, head, now, rows, tile, scratch.keyDecays, gated, t);
      const uint done = now.chunk * p.chunkLength + rows;
      const bool last = now.keys && now.row + TileOf<T, KeyBlocks>::rows >= rows;
      if ((p.present & CHUNK_STATE_HAS_SNAPSHOTS) && last && done % p.snapshotEvery == 0 && real) {
        const uint place =
            first_snapshot(cuts, group.z, sequence.tokens, p.tokens, p.snapshotEvery) + done / p.snapshotEvery - 1;
        store_state<KeyBlocks>(state, keyBlocks, snapshots + (ulong(place) * H + group.y) * V * K + own,
                               p.columnStride);
      }
    }

    threadgroup T* to = (threadgroup T*)(scratch.tiles + (~turn & 1) * CHUNK_STATE_BUFFER_BYTES);
    store_tile<T, KeyBlocks>(to, ahead, next, nextRows, t);
    threadgroup_barrier(mem_flags::mem_threadgroup);
    now = next;
    if (next.chunk < count) next = tile_after(next, nextRows, TileOf<T, KeyBlocks>::rows);
  }

  if ((p.present & CHUNK_STATE_HAS_FINAL_STATE) && real)
    store_state<KeyBlocks>(state, keyBlocks, finalState + stateAt, p.columnStride);
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
