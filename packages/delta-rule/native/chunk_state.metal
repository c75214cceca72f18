// One threadgroup: 16 value rows of the state of one head, chunk after chunk. Each simdgroup keeps a quarter of the
// state's columns, those of keys, in registers, and brings its columns of w and k itself. The simdgroups meet where
// they add up their parts of w Sᵀ, and where each takes the values that come of it.
#include "channels_metal.h"
#include "chunk_state.params.h"
#include "metal_tile.h"

using namespace metal;
using namespace mlxts;

constant constexpr uint kRows = CHUNK_STATE_ROWS, kChunk = CHUNK_STATE_MOST_TOKENS;
// A thread has four tokens of one value at a time, the threadgroup so many tokens.
constant constexpr uint kRound = 4 * CHUNK_STATE_THREADS / kRows;

template <uint Columns>
using State = TileSum<kRows, Columns>;

// The rows and columns that a simdgroup has of a state, and how far they lie apart.
struct StatePlace {
  uint rows, columns, rowStride, columnStride;
};

// Tokens of a sequence.
struct Part {
  uint first, count;
};

template <uint Columns>
METAL_FUNC void load_state(thread State<Columns>& state, device const float* from, StatePlace p, uint lane) {
  MLXTS_UNROLL for (uint r = 0; r < kRows / 8; ++r) {
    MLXTS_UNROLL for (uint c = 0; c < Columns / 8; ++c) {
      const uint row = 8 * r + matrix_row(lane), column = 8 * c + matrix_column(lane);
      if (row >= p.rows || column >= p.columns) continue;
      device const float* two = from + row * p.rowStride + column * p.columnStride;
      MLXTS_UNROLL for (uint e = 0; e < 2; ++e) state.at(r, c, e) = two[e * p.columnStride];
    }
  }
}

template <uint Columns, typename To>
METAL_FUNC void store_state(thread const State<Columns>& state, device To* to, StatePlace p, uint lane) {
  MLXTS_UNROLL for (uint r = 0; r < kRows / 8; ++r) {
    MLXTS_UNROLL for (uint c = 0; c < Columns / 8; ++c) {
      const uint row = 8 * r + matrix_row(lane), column = 8 * c + matrix_column(lane);
      if (row >= p.rows || column >= p.columns) continue;
      device To* two = to + row * p.rowStride + column * p.columnStride;
      MLXTS_UNROLL for (uint e = 0; e < 2; ++e) two[e * p.columnStride] = To(state.at(r, c, e));
    }
  }
}

// What is left at a chunk's end: of its tokens and, behind them, of the state; with `Channels` of the state's columns.
// G begins with the chunk.
template <bool Channels>
METAL_FUNC void store_decays(threadgroup float* decays, CumulativeGateTensors G, uint tokens, uint K, uint index) {
  const uint last = tokens - 1, column = 4 * index;
  if (Channels) {
    if (column < K) store4_aligned(decays + column, exp4_of_sum(high4(G, last, column), low4(G, last, column)));
  } else if (index <= tokens) {
    const uint own = min(index, last) * G.stride;
    const float high = G.high[last * G.stride], low = G.carriesLow ? G.low[last * G.stride] : 0.0f;
    const float difference = (high - G.high[own]) + (G.carriesLow ? low - G.low[own] : 0.0f);
    decays[index] = index < tokens ? precise::exp(difference) : exp_of_sum(high, low);
  }
}

// S ← exp(G_last) S; `decays` has one number for all columns, or with `Channels` one for each.
template <bool Channels, uint Columns>
METAL_FUNC void decay_state(thread State<Columns>& state, threadgroup const float* decays, uint columns, uint lane) {
  MLXTS_UNROLL for (uint c = 0; c < Columns / 8; ++c) {
    const uint column = 8 * c + matrix_column(lane);
    if (column >= columns) continue;
    MLXTS_UNROLL for (uint e = 0; e < 2; ++e) {
      const float decay = decays[Channels ? column + e : 0];
      MLXTS_UNROLL for (uint r = 0; r < kRows / 8; ++r) state.at(r, c, e) *= decay;
    }
  }
}

// What becomes of a tile on its way: nothing, or with `Channels` keys are decayed to their chunk's end. G begins with
// the tile and the simdgroup's columns, and so does `last` count.
template <bool Channels>
struct Decayed {
  CumulativeGateTensors G;
  uint last, columns;

  float4 operator()(uint token, uint column, float4 keys) const {
    if (!Channels || token > last || column >= columns) return keys;
    const float4 high = high4(G, last, column) - high4(G, token, column);
    return keys * exp4(high + (low4(G, last, column) - low4(G, token, column)));
  }
};

// A simdgroup's columns of w or k from a sequence's first token on, in tiles of at most kTokens, `step` of which count.
template <typename T, uint Columns>
struct KeyTiles {
  static constant constexpr uint kLeast = 16 * Columns * sizeof(T), kStride = tile_stride<T>(Columns);
  static constant constexpr uint kTokens = kLeast < CHUNK_STATE_TILE_BYTES ? 16 * CHUNK_STATE_TILE_BYTES / kLeast : 16;
  // Tokens whose products have room beside the tiles.
  static constant constexpr uint kPart = kLeast > CHUNK_STATE_TILE_BYTES ? kChunk / 2 : kChunk;
  device const T* from;
  uint stride, tokens, columns, step, lane;
  threadgroup T* tile;
  TileCopy<T, T, kTokens, Columns, kSimd> copy;

  METAL_FUNC void start(uint token) thread {
    const uint left = token < tokens ? tokens - token : 0;
    copy.start(from + ulong(token) * stride, stride, min(left, step), columns, lane);
  }
  // Puts the tile that begins with `token` into `tile` and starts the next one.
  template <bool Channels>
  METAL_FUNC void next(uint token, Decayed<Channels> decayed) thread {
    simdgroup_barrier(mem_flags::mem_threadgroup);  // the products of the tile before are done
    copy.finish(tile, lane, decayed);
    simdgroup_barrier(mem_flags::mem_threadgroup);
    start(token + step);
  }
};

// This threadgroup's values of u and vNew, from a sequence's first token on.
template <typename T>
struct ValueRows {
  device const T* u;
  device T* vNew;
  uint stride, values;
};

// This simdgroup's part of S wᵀ.
template <typename T, uint Columns>
METAL_FUNC void store_products(threadgroup float* products, thread const State<Columns>& state,
                               thread KeyTiles<T, Columns>& w, Part part) {
  constexpr uint kStride = tile_stride<float>(KeyTiles<T, Columns>::kPart);
  const TileLeft<float, kRows, Columns> left = as_left<float>(state);
  for (uint first = 0; first < part.count; first += w.step) {
    w.next(part.first + first, Decayed<false>());
    for (uint i = first; i < min(first + w.step, part.count); i += 16) {
      TileRight<T, Columns, 16> right;
      load_transposed(right, w.tile + (i - first) * w.kStride, w.kStride);
      TileSum<kRows, 16> sum;
      fill(sum, 0.0f);
      multiply_add(sum, left, right);
      MLXTS_UNROLL for (uint r = 0; r < kRows / 8; ++r) {
        MLXTS_UNROLL for (uint c = 0; c < 2; ++c) {
          threadgroup float* to = products + (8 * r + matrix_row(w.lane)) * kStride + i + 8 * c;
          *(threadgroup float2*)(to + matrix_column(w.lane)) = float2(sum.at(r, c, 0), sum.at(r, c, 1));
        }
      }
    }
  }
}

// This thread's u.
template <typename T, uint Rounds>
METAL_FUNC void load_values(thread vec<T, 4> (&u)[Rounds], ValueRows<T> rows, Part part, uint index) {
  const uint v = index % kRows;
  MLXTS_UNROLL for (uint r = 0; r < Rounds; ++r) {
    MLXTS_UNROLL for (uint e = 0; e < 4; ++e) {
      const uint i = r * kRound + index / kRows * 4 + e;
      u[r][e] = i < part.count && v < rows.values ? rows.u[ulong(part.first + i) * rows.stride + v] : T(0.0f);
    }
  }
}

// vNew = u − w Sᵀ; `gated` keeps what of it is left at the chunk's end, with `Channels` all, and zeros behind.
template <bool Channels, typename T, uint Rounds>
METAL_FUNC void store_values(threadgroup T* gated, thread const vec<T, 4> (&u)[Rounds],
                             threadgroup const float* products, uint simdgroups, threadgroup const float* decays,
                             ValueRows<T> rows, Part part, uint index) {
  constexpr uint kStride = tile_stride<float>(Rounds * kRound);
  const uint v = index % kRows;
  MLXTS_UNROLL for (uint r = 0; r < Rounds; ++r) {
    const uint first = r * kRound + index / kRows * 4;
    if (first >= (part.count + 15) / 16 * 16) continue;
    float4 product = float4(0.0f);
    for (uint s = 0; s < simdgroups; ++s) product += load4_aligned(products + (s * kRows + v) * kStride + first);
    vec<T, 4> kept = vec<T, 4>(T(0.0f));
    MLXTS_UNROLL for (uint e = 0; e < 4; ++e) {
      const uint i = first + e;
      if (i >= part.count) continue;
      const float value = float(u[r][e]) - product[e];
      if (v < rows.values) rows.vNew[ulong(part.first + i) * rows.stride + v] = T(value);
      kept[e] = T(Channels ? value : value * decays[i]);
    }
    *(threadgroup vec<T, 4>*)(gated + v * tile_stride<T>(kChunk) + first) = kept;
  }
}

// S ← S + Σ gated_i k_iᵀ of a chunk, with which G begins.
template <bool Channels, typename T, uint Columns>
METAL_FUNC void add_keys(thread State<Columns>& state, threadgroup const T* gated, thread KeyTiles<T, Columns>& k,
                         CumulativeGateTensors G, Part chunk) {
  for (uint first = 0; first < chunk.count; first += k.step) {
    k.next(chunk.first + first,
           Decayed<Channels>{gates_from(G, first * G.stride), chunk.count - 1 - first, k.columns});
    for (uint i = first; i < min(first + k.step, chunk.count); i += 16) {
      TileLeft<T, kRows, 16> values;
      TileRight<T, 16, Columns> keys;
      load(values, gated + i, tile_stride<T>(kChunk));
      load(keys, k.tile + (i - first) * k.kStride, k.kStride);
      multiply_add(state, values, keys);
    }
  }
}

// The state from a chunk's beginning to its end; vNew. G begins with the chunk, `column` is the simdgroup's first.
template <bool Channels, typename T, uint Columns>
METAL_FUNC void use_chunk(thread State<Columns>& state, thread KeyTiles<T, Columns>& w,
                          thread KeyTiles<T, Columns>& k, ValueRows<T> values, CumulativeGateTensors G, uint K,
                          uint column, Part chunk, ChunkStateScratch scratch, uint index) {
  constexpr uint kPart = KeyTiles<T, Columns>::kPart, kProducts = kRows * tile_stride<float>(kPart);
  threadgroup T* gated = (threadgroup T*)scratch.gated;
  store_decays<Channels>(scratch.decays, G, chunk.count, K, index);
  for (uint first = 0; first < chunk.count; first += kPart) {
    if (first > 0) threadgroup_barrier(mem_flags::mem_threadgroup);  // the products before are added up
    const Part part = {chunk.first + first, min(chunk.count - first, kPart)};
    vec<T, 4> u[kPart / kRound];
    load_values(u, values, part, index);
    if (column < K) store_products(scratch.products + column / Columns * kProducts, state, w, part);
    threadgroup_barrier(mem_flags::mem_threadgroup);
    store_values<Channels>(gated + first, u, scratch.products, (K + Columns - 1) / Columns, scratch.decays + first,
                           values, part, index);
  }
  decay_state<Channels>(state, scratch.decays + (Channels ? column : chunk.count), w.columns, w.lane);
  threadgroup_barrier(mem_flags::mem_threadgroup);
  if (column < K) add_keys<Channels>(state, gated, k, gates_from(G, Channels ? column : 0), chunk);
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
template <typename T, uint Keys, bool Channels>
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
  constexpr uint kColumns = Keys / CHUNK_STATE_SIMDGROUPS;
  typedef KeyTiles<T, kColumns> Tiles;
  const auto scratch = scratch_of(memory, p);
  const Indices cuts = {cuSeqlens, bool(p.present & CHUNK_STATE_HAS_CU_SEQLENS)};
  const Sequence sequence = threadgroup_sequence(p, cuts, group.z, {fault, lane}, scratch.place, index);
  if (cuts && sequence.begin > p.tokens) return;
  const Chunks chunks = chunks_in(p, bool(cuts), group.z, sequence);
  const uint K = p.keyDim, V = p.valueDim, H = p.heads, gates = Channels ? K : 1;
  const uint row = group.x * kRows, column = simdgroup * kColumns, columns = column < K ? K - column : 0;
  const ulong cell = ulong(sequence.begin) * H + group.y;
  const ulong keyCell = ulong(sequence.begin) * p.keyHeads + key_head_of(group.y, p.headsPerKey, p.keyHeads);
  const uint step = min(Tiles::kTokens, p.chunkLength);
  threadgroup T* tile = (threadgroup T*)scratch.tiles + simdgroup * Tiles::kTokens * Tiles::kStride;
  Tiles keys = {k + keyCell * K + column, p.keyHeads * K, chunks.tokens, columns, step, lane, tile, {}};
  Tiles ws = {w + cell * K + column, H * K, chunks.tokens, columns, step, lane, tile, {}};
  const ValueRows<T> values = {u + cell * V + row, vNew + cell * V + row, H * V, V - row};
  const bool carriesLow = p.present & CHUNK_STATE_HAS_CUMULATIVE_GATE_LOW;
  const CumulativeGateTensors Gs = {G + cell * gates, GLow + cell * gates, carriesLow, H * gates};
  const StatePlace place = {V - row, columns, p.rowStride, p.columnStride}, inH = {V - row, columns, K, 1};
  const ulong ofState = ulong(V) * K, own = ulong(row) * p.rowStride + ulong(column) * p.columnStride;
  const ulong stateAt = (ulong(group.z) * H + group.y) * ofState + own;
  h += (ulong(chunks.slot) * H + group.y) * ofState + ulong(row) * K + column;

  State<kColumns> state;
  fill(state, 0.0f);
  if (p.present & CHUNK_STATE_HAS_INITIAL_STATE) load_state(state, initialState + stateAt, place, lane);
  ws.start(0);
  keys.start(0);
  for (uint begin = 0; begin < chunks.tokens; begin += p.chunkLength) {
    const Part chunk = {begin, min(p.chunkLength, chunks.tokens - begin)};
    store_state(state, h, inH, lane);
    h += H * ofState;
    use_chunk<Channels>(state, ws, keys, values, gates_from(Gs, ulong(begin) * Gs.stride), K, column, chunk, scratch,
                        index);
    const uint done = begin + chunk.count;
    if (!(p.present & CHUNK_STATE_HAS_SNAPSHOTS) || done % p.snapshotEvery != 0) continue;
    const uint snapshot =
        first_snapshot(cuts, group.z, sequence.tokens, p.tokens, p.snapshotEvery) + done / p.snapshotEvery - 1;
    store_state(state, snapshots + (ulong(snapshot) * H + group.y) * ofState + own, place, lane);
  }
  if (p.present & CHUNK_STATE_HAS_FINAL_STATE) store_state(state, finalState + stateAt, place, lane);
}

#define CHUNK_STATE(name, T, K, suffix, channels)                      \
  template[[host_name("chunk_state_" name "_k" #K suffix)]] [[kernel]] \
  decltype(chunk_state<T, K, channels>) chunk_state<T, K, channels>;
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
