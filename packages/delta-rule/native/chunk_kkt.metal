// One threadgroup: A of one chunk of one head; two rows of blocks to a simdgroup, a panel of k at a time.
#include "chunk_kkt.params.h"
#include "chunk_metal.h"

using namespace metal;
using namespace mlxts;

// A row of blocks: the dot products below the diagonal times exp(G_i − G_j), zeros elsewhere.
METAL_FUNC void store_decayed(thread Block* dots, uint strip, uint length, uint rows, Gates gates, BlockLane at,
                              device float* a, uint stride) {
  const uint row = strip * 8 + at.row;
  if (row >= rows) return;
  MLXTS_UNROLL
  for (uint b = 0; b < 8; ++b) {
    if (b * 8 >= length) continue;
    for (uint e = 0; e < 2; ++e) {
      const uint column = b * 8 + at.column + e;
      a[row * stride + column] = column < row ? dots[b].thread_elements()[e] * decay_between(gates, row, column) : 0.0f;
    }
  }
}

template <typename T>
kernel void chunk_kkt(device const T* k [[buffer(CHUNK_KKT_K)]], device const float* beta [[buffer(CHUNK_KKT_BETA)]],
                      device const float* sum [[buffer(CHUNK_KKT_SUM)]],
                      device const float* sumLow [[buffer(CHUNK_KKT_SUM_LOW)]], device float* a [[buffer(CHUNK_KKT_A)]],
                      constant ChunkKktParams& p [[buffer(CHUNK_KKT_PARAMS)]],
                      threadgroup float* memory [[threadgroup(0)]], uint3 group [[threadgroup_position_in_grid]],
                      uint index [[thread_index_in_threadgroup]], uint lane [[thread_index_in_simdgroup]],
                      uint simdgroup [[simdgroup_index_in_threadgroup]]) {
  constexpr uint kColumns = (CHUNK_KKT_ROW_BYTES - 16) / sizeof(T), kStride = CHUNK_KKT_ROW_BYTES / sizeof(T);
  const uint length = p.chunkLength, H = p.heads;
  const ChunkPlace place = chunk_place(group.x, group.y, group.z, p.tokens, length, H / p.keyHeads);
  const Gates gates = {memory, memory + length};
  threadgroup T* keys = (threadgroup T*)(memory + 2 * length);
  const ulong cell = place.token * H + place.head;
  stage_gates(gates, sum + cell, sumLow + cell, p.present & CHUNK_KKT_HAS_SUM_LOW, H, place.rows, length, index);

  const BlockLane at = block_lane(lane);
  const Strips strips = strips_of(simdgroup, length, place.rows);
  const uint lowRow = strips.low * 8 + at.row, highRow = strips.high * 8 + at.row;
  const float lowBeta = lowRow < place.rows ? beta[cell + lowRow * H] : 0.0f;
  const float highBeta = highRow < place.rows ? beta[cell + highRow * H] : 0.0f;
  device const T* from = k + (place.token * p.keyHeads + place.keyHead) * p.keyDim;
  Triangle dots;
  clear(dots);
  for (uint c = 0; c < p.keyDim; c += kColumns) {
    const uint columns = min(kColumns, p.keyDim - c);
    if (c > 0) threadgroup_barrier(mem_flags::mem_threadgroup);
    stage_rows<T, kColumns, kStride>(keys, from + c, p.keyHeads * p.keyDim, place.rows, columns, index, length * 2);
    threadgroup_barrier(mem_flags::mem_threadgroup);
    add_products<T, kStride>(dots, strips, keys, keys, columns, lowBeta, highBeta, at);
  }
  store_decayed(dots.low, strips.low, length, place.rows, gates, at, a + cell * length, H * length);
  store_decayed(dots.high, strips.high, length, place.rows, gates, at, a + cell * length, H * length);
}

#define CHUNK_KKT(name, T) template [[host_name("chunk_kkt_" name)]] [[kernel]] decltype(chunk_kkt<T>) chunk_kkt<T>;
CHUNK_KKT("f32", float)
CHUNK_KKT("f16", half)
CHUNK_KKT("bf16", bfloat)
