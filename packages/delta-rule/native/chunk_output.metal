// One threadgroup: o of one chunk of one head, two rows of blocks to a simdgroup. The scores stay in registers; q with
// k, then q with the state's rows, then vNew go through threadgroup memory in panels.
#include "channels_metal.h"
#include "chunk_output.params.h"

using namespace metal;
using namespace mlxts;

constant constexpr uint kValues = CHUNK_OUTPUT_VALUES, kValueBlocks = kValues / 8;

// A row of blocks of scores: rounded up to the diagonal, 0 beyond; those that have no gates yet times exp(G_i − G_j).
template <typename T, bool Channels>
METAL_FUNC void finish_scores(thread Block* scores, uint strip, uint blocks, uint rows, Gates gates, BlockLane at) {
  const uint row = strip * 8 + at.row;
  MLXTS_UNROLL
  for (uint b = 0; b < 8; ++b) {
    if (b >= blocks) continue;
    for (uint e = 0; e < 2; ++e) {
      const uint column = b * 8 + at.column + e;
      float seen = 0.0f;
      if (column <= row && row < rows)
        seen = float(T(scores[b].thread_elements()[e] * (Channels ? 1.0f : decay_between(gates, row, column))));
      scores[b].thread_elements()[e] = seen;
    }
  }
}

// With `Channels` each channel of a key has its own gate. Q is what q times exp(G) is kept in, else T.
template <typename T, typename Q, bool Channels>
kernel void chunk_output(device const T* q [[buffer(CHUNK_OUTPUT_Q)]], device const T* k [[buffer(CHUNK_OUTPUT_K)]],
                         device const T* vNew [[buffer(CHUNK_OUTPUT_V_NEW)]],
                         device const T* h [[buffer(CHUNK_OUTPUT_H)]],
                         device const float* sum [[buffer(CHUNK_OUTPUT_SUM)]],
                         device const float* sumLow [[buffer(CHUNK_OUTPUT_SUM_LOW)]],
                         device const Index* cuSeqlens [[buffer(CHUNK_OUTPUT_CU_SEQLENS)]],
                         device const uchar* mask [[buffer(CHUNK_OUTPUT_MASK)]], device T* o [[buffer(CHUNK_OUTPUT_O)]],
                         constant ChunkOutputParams& p [[buffer(CHUNK_OUTPUT_PARAMS)]],
                         device MlxtsFault* fault [[buffer(CHUNK_OUTPUT_FAULT)]],
                         threadgroup float* memory [[threadgroup(0)]], uint3 group [[threadgroup_position_in_grid]],
                         uint3 groups [[threadgroups_per_grid]], uint index [[thread_index_in_threadgroup]],
                         uint lane [[thread_index_in_simdgroup]], uint simdgroup [[simdgroup_index_in_threadgroup]]) {
  constexpr uint kColumns = (CHUNK_OUTPUT_ROW_BYTES - 16) / sizeof(Q);
  constexpr uint kQueryStride = kColumns + 16 / sizeof(Q), kStride = kColumns + 16 / sizeof(T);
  constexpr uint kValueStride = kValues + 16 / sizeof(T);
  const Indices cuts = {cuSeqlens, bool(p.present & CHUNK_OUTPUT_HAS_CU_SEQLENS)};
  const bool pair = p.present & CHUNK_OUTPUT_HAS_SUM_LOW;
  const ChunkPlace place = threadgroup_place(p, cuts, group.x, groups.x, group.y, group.z, {fault, lane}, CHUNK_OUTPUT_FAULT_CU_SEQLENS,
                                             memory, index);
  const uint length = p.chunkLength, threads = length * 2, H = p.heads, K = p.keyDim, V = p.valueDim;
  const uint rows = place.rows, keyStride = p.keyHeads * K;
  if (rows == 0) return;
  const ulong cell = place.token * H + place.head;
  const ulong keyCell = (place.token * p.keyHeads + key_head_of(place.head, p.headsPerKey, p.keyHeads)) * K;
  const Gates gates = {memory, memory + length};
  threadgroup Q* queries = (threadgroup Q*)(Channels ? memory : memory + 2 * length);  // [length][kQueryStride]
  threadgroup T* others =
      (threadgroup T*)(queries + length * kQueryStride);  // [max(length, kValues)][kStride]: k, then h
  threadgroup T* values = (threadgroup T*)queries;        // [length][kValueStride]

  const BlockLane at = block_lane(lane);
  const Strips strips = strips_of(simdgroup, length, rows);
  Triangle scores;
  clear(scores);
  if (Channels) {
    constexpr uint kPanel = CHUNK_OUTPUT_CHANNEL_COLUMNS;
    const ChannelPanel<T, kPanel> panel = channel_panel<T, kPanel>(memory, length);
    const PairLane own = pair_lane(lane);
    float low = 0.0f, high = 0.0f;
    for (uint c = 0; c < K; c += kPanel) {
      const uint columns = min(kPanel, K - c);
      const ChannelGates channels = {sum + cell * K + c, sumLow + cell * K + c, pair, H * K};
      if (c > 0) threadgroup_barrier(mem_flags::mem_threadgroup);
      stage_gates(panel, channels, rows, columns, index, threads);
      stage_rows<T, kPanel, kPanel + 16 / sizeof(T)>(panel.x, q + keyCell + c, keyStride, rows, columns, index,
                                                     threads);
      stage_rows<T, kPanel, kPanel + 16 / sizeof(T)>(panel.y, k + keyCell + c, keyStride, rows, columns, index,
                                                     threads);
      threadgroup_barrier(mem_flags::mem_threadgroup);
      if (strips.lowBlocks) add_channel_products<4, true>(scores.low, low, strips.low, panel, columns, at, own);
      if (strips.highBlocks) add_channel_products<8, true>(scores.high, high, strips.high, panel, columns, at, own);
    }
    place_pairs<4>(scores.low, low, strips.low, at);
    place_pairs<8>(scores.high, high, strips.high, at);
  } else {
    stage_gates(gates, sum + cell, sumLow + cell, pair, H, rows, length, index);
    for (uint c = 0; c < K; c += kColumns) {
      const uint columns = min(kColumns, K - c);
      if (c > 0) threadgroup_barrier(mem_flags::mem_threadgroup);
      stage_rows<T, kColumns, kStride>(values, q + keyCell + c, keyStride, rows, columns, index, threads);
      stage_rows<T, kColumns, kStride>(others, k + keyCell + c, keyStride, rows, columns, index, threads);
      threadgroup_barrier(mem_flags::mem_threadgroup);
      add_products<T, kStride>(scores, strips, values, others, columns, 1.0f, 1.0f, at);
    }
  }
  finish_scores<T, Channels>(scores.low, strips.low, strips.lowBlocks, rows, gates, at);
  finish_scores<T, Channels>(scores.high, strips.high, strips.highBlocks, rows, gates, at);
  const uint lowRow = strips.low * 8 + at.row, highRow = strips.high * 8 + at.row;
  const float lowDecay = Channels ? 1.0f : exp_pair(gates.hi[lowRow], gates.lo[lowRow]);
  const float highDecay = Channels ? 1.0f : exp_pair(gates.hi[highRow], gates.lo[highRow]);
  const bool masked = p.present & CHUNK_OUTPUT_HAS_MASK;
  const bool lowKept = !masked || lowRow >= rows || mask[place.token + lowRow] != 0;
  const bool highKept = !masked || highRow >= rows || mask[place.token + highRow] != 0;

  device const T* states = h + (ulong(place.slot) * H + place.head) * V * K;
  for (uint v = 0; v < V; v += kValues) {
    const uint width = min(kValues, V - v), blocks = (width + 7) / 8;
    Block low[kValueBlocks], high[kValueBlocks];
    MLXTS_UNROLL
    for (uint b = 0; b < kValueBlocks; ++b) low[b] = high[b] = block(0.0f, 0.0f);
    for (uint c = 0; c < K; c += kColumns) {
      const uint columns = min(kColumns, K - c);
      threadgroup_barrier(mem_flags::mem_threadgroup);
      if (Channels) {
        const ChannelGates channels = {sum + cell * K + c, sumLow + cell * K + c, pair, H * K};
        stage_decayed<false, Q, T, kColumns, kQueryStride>(queries, q + keyCell + c, keyStride, channels, rows, columns,
                                                           memory, index, threads);
      } else {
        stage_rows<T, kColumns, kStride>(values, q + keyCell + c, keyStride, rows, columns, index, threads);
      }
      stage_rows<T, kColumns, kStride>(others, states + ulong(v) * K + c, K, width, columns, index, threads);
      threadgroup_barrier(mem_flags::mem_threadgroup);
      if (strips.lowBlocks == 0) continue;
      for (uint i = 0; i < columns; i += 8) {
        const Block lowRows = load_block(queries + strips.low * 8 * kQueryStride + i, kQueryStride, at);
        Block highRows = lowRows;
        if (strips.highBlocks) highRows = load_block(queries + strips.high * 8 * kQueryStride + i, kQueryStride, at);
        MLXTS_UNROLL
        for (uint b = 0; b < kValueBlocks; ++b) {
          if (b >= blocks) continue;
          const Block state = load_transposed(others + b * 8 * kStride + i, kStride, at);
          multiply_add(low[b], lowRows, state);
          if (strips.highBlocks) multiply_add(high[b], highRows, state);
        }
      }
    }
    threadgroup_barrier(mem_flags::mem_threadgroup);
    stage_rows<T, kValues, kValueStride>(values, vNew + cell * V + v, H * V, rows, width, index, threads);
    threadgroup_barrier(mem_flags::mem_threadgroup);
    if (strips.lowBlocks == 0) continue;
    MLXTS_UNROLL
    for (uint b = 0; b < kValueBlocks; ++b) {
      if (b >= blocks) continue;
      low[b] = scaled(low[b], lowDecay);
      high[b] = scaled(high[b], highDecay);
      MLXTS_UNROLL
      for (uint m = 0; m < 8; ++m) {
        if (m >= strips.highBlocks && m >= strips.lowBlocks) continue;
        const Block value = load_block(values + m * 8 * kValueStride + b * 8, kValueStride, at);
        if (m < strips.highBlocks) multiply_add(high[b], scores.high[m], value);
        if (m < 4 && m < strips.lowBlocks) multiply_add(low[b], scores.low[m], value);
      }
      const uint column = b * 8 + at.column;
      store_row(o + cell * V + v, H * V, lowRow, rows, column, width, low[b], p.scale, lowKept);
      store_row(o + cell * V + v, H * V, highRow, rows, column, width, high[b], p.scale, highKept);
    }
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
