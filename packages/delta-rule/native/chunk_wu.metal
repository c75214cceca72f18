// One threadgroup: u or w of one chunk of one head. X stays in registers, two rows of blocks to a simdgroup; a panel of
// scaled values or keys at a time goes through threadgroup memory.
#include "channels_metal.h"
#include "chunk_wu.params.h"

using namespace metal;
using namespace mlxts;

// A row of blocks of X up to the diagonal.
METAL_FUNC Block load_x(device const float* x, uint stride, uint strip, uint b, uint rows, BlockLane at) {
  const uint row = strip * 8 + at.row;
  if (row >= rows) return block(0.0f, 0.0f);
  device const float* from = x + row * stride + b * 8 + at.column;
  return block(from[0], from[1]);
}

// With `Channels` each channel of a key has its own gate.
template <typename T, bool Channels>
kernel void chunk_wu(device const T* k [[buffer(CHUNK_WU_K)]], device const T* v [[buffer(CHUNK_WU_V)]],
                     device const float* beta [[buffer(CHUNK_WU_BETA)]],
                     device const float* sum [[buffer(CHUNK_WU_SUM)]],
                     device const float* sumLow [[buffer(CHUNK_WU_SUM_LOW)]],
                     device const Index* cuSeqlens [[buffer(CHUNK_WU_CU_SEQLENS)]],
                     device const float* x [[buffer(CHUNK_WU_X)]], device T* w [[buffer(CHUNK_WU_W)]],
                     device T* u [[buffer(CHUNK_WU_U)]], constant ChunkWuParams& p [[buffer(CHUNK_WU_PARAMS)]],
                     device MlxtsFault* fault [[buffer(CHUNK_WU_FAULT)]], threadgroup float* factor [[threadgroup(0)]],
                     uint3 group [[threadgroup_position_in_grid]], uint3 groups [[threadgroups_per_grid]],
                     uint index [[thread_index_in_threadgroup]], uint lane [[thread_index_in_simdgroup]],
                     uint simdgroup [[simdgroup_index_in_threadgroup]]) {
  constexpr uint kColumns = (CHUNK_WU_ROW_BYTES - 16) / sizeof(T), kStride = CHUNK_WU_ROW_BYTES / sizeof(T);
  const Indices cuts = {cuSeqlens, bool(p.present & CHUNK_WU_HAS_CU_SEQLENS)};
  const bool pair = p.present & CHUNK_WU_HAS_SUM_LOW;
  const ChunkPlace place = threadgroup_place(p, cuts, group.x, groups.x, group.y, group.z / 2, {fault, lane}, CHUNK_WU_FAULT_CU_SEQLENS,
                                             factor, index);
  const uint length = p.chunkLength, H = p.heads, rows = place.rows;
  if (rows == 0) return;
  const ulong cell = place.token * H + place.head;
  threadgroup T* panel = (threadgroup T*)(factor + length);

  const bool keys = group.z & 1;
  const uint all = keys ? p.keyDim : p.valueDim, stride = keys ? p.keyHeads * p.keyDim : H * p.valueDim;
  const uint keyHead = key_head_of(place.head, p.headsPerKey, p.keyHeads);
  device const T* from = keys ? k + (place.token * p.keyHeads + keyHead) * p.keyDim : v + cell * p.valueDim;
  device T* to = keys ? w + cell * p.keyDim : u + cell * p.valueDim;
  if (index < rows) {
    float scale = beta[cell + index * H];
    if (keys && !Channels) scale *= exp_pair(sum[cell + index * H], pair ? sumLow[cell + index * H] : 0.0f);
    factor[index] = scale;
  }

  const BlockLane at = block_lane(lane);
  const Strips strips = strips_of(simdgroup, length, rows);
  device const float* xRows = x + cell * length;
  Triangle X;
  clear(X);
  MLXTS_UNROLL
  for (uint b = 0; b < 8; ++b) {
    if (b < 4 && b < strips.lowBlocks) X.low[b] = load_x(xRows, H * length, strips.low, b, rows, at);
    if (b < strips.highBlocks) X.high[b] = load_x(xRows, H * length, strips.high, b, rows, at);
  }
  threadgroup_barrier(mem_flags::mem_threadgroup);

  for (uint c = 0; c < all; c += kColumns) {
    const uint columns = min(kColumns, all - c);
    if (c > 0) threadgroup_barrier(mem_flags::mem_threadgroup);
    if (Channels && keys) {
      const ChannelGates gates = {sum + cell * all + c, sumLow + cell * all + c, pair, H * all};
      stage_decayed<true, T, T, kColumns, kStride>(panel, from + c, stride, gates, rows, columns, factor, index,
                                                   length * 2);
    } else {
      stage_scaled<T, kColumns, kStride>(panel, from + c, stride, rows, columns, factor, index, length * 2);
    }
    threadgroup_barrier(mem_flags::mem_threadgroup);
    if (strips.lowBlocks == 0) continue;
    for (uint b = 0; b * 8 < columns; ++b) {
      Block low = block(0.0f, 0.0f), high = block(0.0f, 0.0f);
      MLXTS_UNROLL
      for (uint m = 0; m < 8; ++m) {
        if (m >= strips.highBlocks && m >= strips.lowBlocks) continue;
        const Block other = load_block(panel + m * 8 * kStride + b * 8, kStride, at);
        if (m < strips.highBlocks) multiply_add(high, X.high[m], other);
        if (m < 4 && m < strips.lowBlocks) multiply_add(low, X.low[m], other);
      }
      const uint column = b * 8 + at.column;
      store_row(to + c, H * all, strips.low * 8 + at.row, rows, column, columns, low, 1.0f, true);
      store_row(to + c, H * all, strips.high * 8 + at.row, rows, column, columns, high, 1.0f, true);
    }
  }
}

#define CHUNK_WU(name, T)                                                                              \
  template [[host_name("chunk_wu_" name)]] [[kernel]] decltype(chunk_wu<T, false>) chunk_wu<T, false>; \
  template [[host_name("chunk_wu_" name "_channels")]] [[kernel]] decltype(chunk_wu<T, true>) chunk_wu<T, true>;
CHUNK_WU("f32", float)
CHUNK_WU("f16", half)
CHUNK_WU("bf16", bfloat)
