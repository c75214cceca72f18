// One threadgroup: o of one chunk of one head, two rows of blocks to a simdgroup. The scores stay in registers; q with
// k, then q with the state's rows, then vNew go through threadgroup memory in panels.
#include "channels_metal.h"
#include "chunk_output.params.h"

using namespace metal;
using namespace mlxts;

constant constexpr uint kValues = CHUNK_OUTPUT_PANEL_VALUES, kValueBlocks = kValues / 8;

// A chunk of one head in device memory, and the state before it; tokens are `keyStride` and `valueStride` apart.
template <typename T>
struct Chunk {
  device const T* q;
  device const T* k;
  device const T* vNew;
  device const T* h;
  CumulativeGateTensors G;
  uint K, keyStride, valueStride;
};

// The strips' blocks of a panel of value columns.
struct ValueBlocks {
  Block top[kValueBlocks], bottom[kValueBlocks];
};

// One gate a head: q_i · k_j.
template <typename T>
METAL_FUNC void sum_head_products(thread Triangle& scores, Chunk<T> chunk, threadgroup T* left, threadgroup T* right,
                                  ChunkThread t) {
  constexpr uint kColumns = CHUNK_OUTPUT_PANEL_BYTES / sizeof(T);
  constexpr uint kStride = kColumns + CHUNK_OUTPUT_GAP_BYTES / sizeof(T);
  for (uint c = 0; c < chunk.K; c += kColumns) {
    const uint columns = min(kColumns, chunk.K - c);
    if (c > 0) threadgroup_barrier(mem_flags::mem_threadgroup);
    stage_rows<T, kColumns, kStride>(left, chunk.q + c, chunk.keyStride, t.rows, columns, t);
    stage_rows<T, kColumns, kStride>(right, chunk.k + c, chunk.keyStride, t.rows, columns, t);
    threadgroup_barrier(mem_flags::mem_threadgroup);
    add_products<T, kStride>(scores, left, right, columns, 1.0f, 1.0f, t);
  }
}

// A gate for each channel: Σ_c q_ic k_jc exp(G_ic − G_jc).
template <typename T, uint Columns, uint Gap>
METAL_FUNC void sum_channel_products(thread Triangle& scores, Chunk<T> chunk, ChannelPanel<T, Columns, Gap> panel,
                                     ChunkThread t) {
  constexpr uint kStride = 2 * Columns + Gap / sizeof(T);
  const PairLane own = pair_lane(t.lane);
  PairSums pairs = {0.0f, 0.0f};
  for (uint c = 0; c < chunk.K; c += Columns) {
    const uint columns = min(Columns, chunk.K - c);
    if (c > 0) threadgroup_barrier(mem_flags::mem_threadgroup);
    stage_gates(panel, gates_from(chunk.G, c), columns, t);
    stage_rows<T, Columns, kStride>(panel.operands, chunk.q + c, chunk.keyStride, t.rows, columns, t);
    stage_rows<T, Columns, kStride>(panel.operands + Columns, chunk.k + c, chunk.keyStride, t.rows, columns, t);
    threadgroup_barrier(mem_flags::mem_threadgroup);
    add_channel_products<true>(scores, pairs, panel, columns, own, t);
  }
  place_pairs(scores, pairs, t);
}

// A row of blocks of scores: rounded up to the diagonal, 0 beyond; those that have no gates yet times exp(G_i − G_j).
template <typename T, bool Channels>
METAL_FUNC void finish_scores(thread Block* scores, uint row, uint blocks, CumulativeGates G, ChunkThread t) {
  MLXTS_UNROLL
  for (uint b = 0; b < 8; ++b) {
    if (b >= blocks) continue;
    for (uint e = 0; e < 2; ++e) {
      const uint column = b * 8 + t.at.column + e;
      float seen = 0.0f;
      if (column <= row && row < t.rows)
        seen = float(T(scores[b].thread_elements()[e] * (Channels ? 1.0f : decay_between(G, row, column))));
      scores[b].thread_elements()[e] = seen;
    }
  }
}

template <typename T, bool Channels>
METAL_FUNC void make_scores(thread Triangle& scores, Chunk<T> chunk, CumulativeGates G, threadgroup uchar* leftBytes,
                            threadgroup uchar* rightBytes, ChunkThread t) {
  threadgroup T* left = (threadgroup T*)leftBytes;
  threadgroup T* right = (threadgroup T*)rightBytes;
  clear(scores);
  if (Channels) {
    typedef ChannelPanel<T, CHUNK_OUTPUT_CHANNEL_COLUMNS, CHUNK_OUTPUT_GAP_BYTES> Panel;
    sum_channel_products(scores, chunk, Panel{right, (threadgroup float*)leftBytes}, t);
  } else {
    stage_gates(G, chunk.G, t);
    sum_head_products(scores, chunk, left, right, t);
  }
  finish_scores<T, Channels>(scores.top, t.topRow, t.strips.topBlocks, G, t);
  finish_scores<T, Channels>(scores.bottom, t.bottomRow, t.strips.bottomBlocks, G, t);
}

// q hᵀ for the value rows from `v` on; with a gate for each channel, of q times exp(G).
template <bool Channels, typename T, typename Q>
METAL_FUNC void multiply_state(thread ValueBlocks& out, Chunk<T> chunk, uint v, uint width, threadgroup Q* left,
                               threadgroup T* right, ChunkThread t) {
  constexpr uint kColumns = CHUNK_OUTPUT_PANEL_BYTES / sizeof(Q);
  constexpr uint kLeft = kColumns + CHUNK_OUTPUT_GAP_BYTES / sizeof(Q);
  constexpr uint kRight = kColumns + CHUNK_OUTPUT_GAP_BYTES / sizeof(T);
  const Strips s = t.strips;
  for (uint c = 0; c < chunk.K; c += kColumns) {
    const uint columns = min(kColumns, chunk.K - c);
    threadgroup_barrier(mem_flags::mem_threadgroup);
    if (Channels)
      stage_decayed<false, Q, T, kColumns, kLeft>(left, chunk.q + c, chunk.keyStride, gates_from(chunk.G, c), columns,
                                                  (threadgroup const float*)left, t);
    else
      stage_rows<T, kColumns, kRight>((threadgroup T*)left, chunk.q + c, chunk.keyStride, t.rows, columns, t);
    stage_rows<T, kColumns, kRight>(right, chunk.h + ulong(v) * chunk.K + c, chunk.K, width, columns, t);
    threadgroup_barrier(mem_flags::mem_threadgroup);
    if (s.topBlocks == 0) continue;
    for (uint i = 0; i < columns; i += 8) {
      const Block top = load_block(left + s.top * 8 * kLeft + i, kLeft, t.at);
      Block bottom = top;
      if (s.bottomBlocks) bottom = load_block(left + s.bottom * 8 * kLeft + i, kLeft, t.at);
      MLXTS_UNROLL
      for (uint b = 0; b < kValueBlocks; ++b) {
        if (b * 8 >= width) continue;
        const Block state = load_transposed(right + b * 8 * kRight + i, kRight, t.at);
        multiply_add(out.top[b], top, state);
        if (s.bottomBlocks) multiply_add(out.bottom[b], bottom, state);
      }
    }
  }
}

// Adds the scores times vNew. The values' columns are in the left panel, and where it is full in the right one.
template <typename T>
METAL_FUNC void multiply_values(thread ValueBlocks& out, thread Triangle& scores, Chunk<T> chunk, uint v, uint width,
                                threadgroup T* left, threadgroup T* right, ChunkThread t) {
  constexpr uint kColumns = CHUNK_OUTPUT_PANEL_BYTES / sizeof(T);
  constexpr uint kStride = kColumns + CHUNK_OUTPUT_GAP_BYTES / sizeof(T);
  static_assert(2 * kColumns >= kValues, "two panels must have room for the values");
  threadgroup_barrier(mem_flags::mem_threadgroup);
  stage_rows<T, kColumns, kStride>(left, chunk.vNew + v, chunk.valueStride, t.rows, min(kColumns, width), t);
  if (width > kColumns)
    stage_rows<T, kColumns, kStride>(right, chunk.vNew + v + kColumns, chunk.valueStride, t.rows, width - kColumns, t);
  threadgroup_barrier(mem_flags::mem_threadgroup);
  const Strips s = t.strips;
  if (s.topBlocks == 0) return;
  MLXTS_UNROLL
  for (uint b = 0; b < kValueBlocks; ++b) {
    if (b * 8 >= width) continue;
    threadgroup const T* values = b * 8 < kColumns ? left + b * 8 : right + (b * 8 - kColumns);
    MLXTS_UNROLL
    for (uint m = 0; m < 8; ++m) {
      if (m >= s.bottomBlocks && m >= s.topBlocks) continue;
      const Block value = load_block(values + m * 8 * kStride, kStride, t.at);
      if (m < s.bottomBlocks) multiply_add(out.bottom[b], scores.bottom[m], value);
      if (m < 4 && m < s.topBlocks) multiply_add(out.top[b], scores.top[m], value);
    }
  }
}

// A lane's row of a strip: what is left of the state at its token, and whether the mask keeps its output.
struct OutputRow {
  uint row;
  float decay;
  bool kept;
};

template <bool Channels>
METAL_FUNC OutputRow output_row(uint row, CumulativeGates G, device const uchar* mask, bool masked, ChunkThread t) {
  return {row, Channels ? 1.0f : exp_of_sum(G.high[row], G.low[row]), !masked || row >= t.rows || mask[row] != 0};
}

// A panel's blocks of a strip, times the scale.
template <typename T>
METAL_FUNC void store_strip(device T* o, uint stride, OutputRow row, uint width, thread Block* out, float scale,
                            ChunkThread t) {
  MLXTS_UNROLL
  for (uint b = 0; b < kValueBlocks; ++b)
    if (b * 8 < width) store_row(o, stride, row.row, t.rows, b * 8 + t.at.column, width, out[b], scale, row.kept);
}

// With `Channels` each channel of a key has its own gate. Q is what q times exp(G) is kept in, else T.
template <typename T, typename Q, bool Channels>
kernel void chunk_output(device const T* q [[buffer(CHUNK_OUTPUT_Q)]], device const T* k [[buffer(CHUNK_OUTPUT_K)]],
                         device const T* vNew [[buffer(CHUNK_OUTPUT_V_NEW)]],
                         device const T* h [[buffer(CHUNK_OUTPUT_H)]],
                         device const float* G [[buffer(CHUNK_OUTPUT_CUMULATIVE_GATE)]],
                         device const float* GLow [[buffer(CHUNK_OUTPUT_CUMULATIVE_GATE_LOW)]],
                         device const Index* cuSeqlens [[buffer(CHUNK_OUTPUT_CU_SEQLENS)]],
                         device const uchar* mask [[buffer(CHUNK_OUTPUT_MASK)]], device T* o [[buffer(CHUNK_OUTPUT_O)]],
                         constant ChunkOutputParams& p [[buffer(CHUNK_OUTPUT_PARAMS)]],
                         device MlxtsFault* fault [[buffer(CHUNK_OUTPUT_FAULT)]],
                         threadgroup uchar* memory [[threadgroup(0)]], uint3 group [[threadgroup_position_in_grid]],
                         uint3 groups [[threadgroups_per_grid]], uint3 size [[threads_per_threadgroup]],
                         uint index [[thread_index_in_threadgroup]], uint lane [[thread_index_in_simdgroup]],
                         uint simdgroup [[simdgroup_index_in_threadgroup]]) {
  const auto scratch = scratch_of(memory, p);
  const Indices cuts = {cuSeqlens, bool(p.present & CHUNK_OUTPUT_HAS_CU_SEQLENS)};
  const ChunkPlace place =
      threadgroup_place(p, cuts, group, groups.x, {fault, lane}, CHUNK_OUTPUT_FAULT_CU_SEQLENS, scratch.place, index);
  if (place.rows == 0) return;
  const ChunkThread t = chunk_thread(index, size.x, lane, simdgroup, place.rows, p.chunkLength);
  const uint H = p.heads, K = p.keyDim, V = p.valueDim, gates = Channels ? K : 1;
  const ulong cell = place.token * H + place.head;
  const ulong keyCell = (place.token * p.keyHeads + key_head_of(place.head, p.headsPerKey, p.keyHeads)) * K;
  const bool carriesLow = p.present & CHUNK_OUTPUT_HAS_CUMULATIVE_GATE_LOW;
  const Chunk<T> chunk = {q + keyCell,
                          k + keyCell,
                          vNew + cell * V,
                          h + (ulong(place.slot) * H + place.head) * V * K,
                          {G + cell * gates, GLow + cell * gates, carriesLow, H * gates},
                          K,
                          p.keyHeads * K,
                          H * V};
  const CumulativeGates headGates = {scratch.cumulativeGateHigh, scratch.cumulativeGateLow};
  threadgroup T* left = (threadgroup T*)scratch.left;
  threadgroup T* right = (threadgroup T*)scratch.right;

  Triangle scores;
  make_scores<T, Channels>(scores, chunk, headGates, scratch.left, scratch.right, t);
  const bool masked = p.present & CHUNK_OUTPUT_HAS_MASK;
  const OutputRow top = output_row<Channels>(t.topRow, headGates, mask + place.token, masked, t);
  const OutputRow bottom = output_row<Channels>(t.bottomRow, headGates, mask + place.token, masked, t);

  for (uint v = 0; v < V; v += kValues) {
    const uint width = min(kValues, V - v);
    ValueBlocks out;
    MLXTS_UNROLL
    for (uint b = 0; b < kValueBlocks; ++b) out.top[b] = out.bottom[b] = block(0.0f, 0.0f);
    multiply_state<Channels>(out, chunk, v, width, (threadgroup Q*)scratch.left, right, t);
    MLXTS_UNROLL
    for (uint b = 0; b < kValueBlocks; ++b) {
      out.top[b] = scaled(out.top[b], top.decay);
      out.bottom[b] = scaled(out.bottom[b], bottom.decay);
    }
    multiply_values(out, scores, chunk, v, width, left, right, t);
    store_strip(o + cell * V + v, H * V, top, width, out.top, p.scale, t);
    store_strip(o + cell * V + v, H * V, bottom, width, out.bottom, p.scale, t);
  }
}

#define CHUNK_OUTPUT(name, T)                                                                                       \
  template                                                                                                          \
      [[host_name("chunk_output_" name)]] [[kernel]] decltype(chunk_output<T, T, false>) chunk_output<T, T, false>; \
  template [[host_name("chunk_output_" name                                                                         \
                       "_channels")]] [[kernel]] decltype(chunk_output<T, float, true>) chunk_output<T, float, true>;
CHUNK_OUTPUT("f32", float)
CHUNK_OUTPUT("f16", half)
CHUNK_OUTPUT("bf16", bfloat)
