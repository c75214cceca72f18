// One threadgroup: o of one chunk of one head, two rows of blocks to a simdgroup. The scores stay in registers; q with
// k, then q with the state's rows, then vNew go through threadgroup memory in panels.
#include "chunk_metal.h"
#include "chunk_output.params.h"

using namespace metal;
using namespace mlxts;

constant constexpr uint kValues = CHUNK_OUTPUT_VALUES, kValueBlocks = kValues / 8;

// A row of blocks of scores: times exp(G_i − G_j) and rounded up to the diagonal, 0 beyond.
template <typename T>
METAL_FUNC void decay_scores(thread Block* scores, uint strip, uint blocks, uint rows, Gates gates, BlockLane at) {
  const uint row = strip * 8 + at.row;
  MLXTS_UNROLL
  for (uint b = 0; b < 8; ++b) {
    if (b >= blocks) continue;
    for (uint e = 0; e < 2; ++e) {
      const uint column = b * 8 + at.column + e;
      const bool seen = column <= row && row < rows;
      const float dot = scores[b].thread_elements()[e];
      scores[b].thread_elements()[e] = seen ? float(T(dot * decay_between(gates, row, column))) : 0.0f;
    }
  }
}

template <typename T>
kernel void chunk_output(device const T* q [[buffer(CHUNK_OUTPUT_Q)]], device const T* k [[buffer(CHUNK_OUTPUT_K)]],
                         device const T* vNew [[buffer(CHUNK_OUTPUT_V_NEW)]],
                         device const T* h [[buffer(CHUNK_OUTPUT_H)]],
                         device const float* sum [[buffer(CHUNK_OUTPUT_SUM)]],
                         device const float* sumLow [[buffer(CHUNK_OUTPUT_SUM_LOW)]],
                         device T* o [[buffer(CHUNK_OUTPUT_O)]],
                         constant ChunkOutputParams& p [[buffer(CHUNK_OUTPUT_PARAMS)]],
                         threadgroup float* memory [[threadgroup(0)]], uint3 group [[threadgroup_position_in_grid]],
                         uint3 groups [[threadgroups_per_grid]], uint index [[thread_index_in_threadgroup]],
                         uint lane [[thread_index_in_simdgroup]], uint simdgroup [[simdgroup_index_in_threadgroup]]) {
  constexpr uint kColumns = (CHUNK_OUTPUT_ROW_BYTES - 16) / sizeof(T), kStride = CHUNK_OUTPUT_ROW_BYTES / sizeof(T);
  constexpr uint kValueStride = kValues + 16 / sizeof(T);
  const uint length = p.chunkLength, threads = length * 2, H = p.heads, K = p.keyDim, V = p.valueDim;
  const ChunkPlace place = chunk_place(group.x, group.y, group.z, p.tokens, length, H / p.keyHeads);
  const uint rows = place.rows, keyStride = p.keyHeads * K;
  const ulong cell = place.token * H + place.head, keyCell = (place.token * p.keyHeads + place.keyHead) * K;
  const Gates gates = {memory, memory + length};
  threadgroup T* queries = (threadgroup T*)(memory + 2 * length);  // [length][kStride]
  threadgroup T* others = queries + length * kStride;              // [max(length, kValues)][kStride]: k, then h
  threadgroup T* values = queries;                                 // [length][kValueStride]
  stage_gates(gates, sum + cell, sumLow + cell, p.present & CHUNK_OUTPUT_HAS_SUM_LOW, H, rows, length, index);

  const BlockLane at = block_lane(lane);
  const Strips strips = strips_of(simdgroup, length, rows);
  Triangle scores;
  clear(scores);
  for (uint c = 0; c < K; c += kColumns) {
    const uint columns = min(kColumns, K - c);
    if (c > 0) threadgroup_barrier(mem_flags::mem_threadgroup);
    stage_rows<T, kColumns, kStride>(queries, q + keyCell + c, keyStride, rows, columns, index, threads);
    stage_rows<T, kColumns, kStride>(others, k + keyCell + c, keyStride, rows, columns, index, threads);
    threadgroup_barrier(mem_flags::mem_threadgroup);
    add_products<T, kStride>(scores, strips, queries, others, columns, 1.0f, 1.0f, at);
  }
  decay_scores<T>(scores.low, strips.low, strips.lowBlocks, rows, gates, at);
  decay_scores<T>(scores.high, strips.high, strips.highBlocks, rows, gates, at);
  const uint lowRow = strips.low * 8 + at.row, highRow = strips.high * 8 + at.row;
  const float lowDecay = exp_pair(gates.hi[lowRow], gates.lo[lowRow]);
  const float highDecay = exp_pair(gates.hi[highRow], gates.lo[highRow]);

  device const T* states = h + ((ulong(group.z) * groups.x + group.x) * H + place.head) * V * K;
  for (uint v = 0; v < V; v += kValues) {
    const uint width = min(kValues, V - v), blocks = (width + 7) / 8;
    Block low[kValueBlocks], high[kValueBlocks];
    MLXTS_UNROLL
    for (uint b = 0; b < kValueBlocks; ++b) low[b] = high[b] = block(0.0f, 0.0f);
    for (uint c = 0; c < K; c += kColumns) {
      const uint columns = min(kColumns, K - c);
      threadgroup_barrier(mem_flags::mem_threadgroup);
      stage_rows<T, kColumns, kStride>(queries, q + keyCell + c, keyStride, rows, columns, index, threads);
      stage_rows<T, kColumns, kStride>(others, states + ulong(v) * K + c, K, width, columns, index, threads);
      threadgroup_barrier(mem_flags::mem_threadgroup);
      if (strips.lowBlocks == 0) continue;
      for (uint i = 0; i < columns; i += 8) {
        const Block lowRows = load_block(queries + strips.low * 8 * kStride + i, kStride, at);
        Block highRows = lowRows;
        if (strips.highBlocks) highRows = load_block(queries + strips.high * 8 * kStride + i, kStride, at);
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
      store_row(o + cell * V + v, H * V, lowRow, rows, column, width, low[b], p.scale);
      store_row(o + cell * V + v, H * V, highRow, rows, column, width, high[b], p.scale);
    }
  }
}

#define CHUNK_OUTPUT(name, T) \
  template [[host_name("chunk_output_" name)]] [[kernel]] decltype(chunk_output<T>) chunk_output<T>;
CHUNK_OUTPUT("f32", float)
CHUNK_OUTPUT("f16", half)
CHUNK_OUTPUT("bf16", bfloat)
