// One threadgroup: u or w of one chunk of one head. X stays in registers, two rows of blocks to a simdgroup; a panel of
// scaled values or keys at a time goes through threadgroup memory.
#include "channels_metal.h"
#include "chunk_wu.params.h"

using namespace metal;
using namespace mlxts;

// A row of blocks of X up to the diagonal.
METAL_FUNC Block load_x(device const float* x, uint stride, uint row, uint b, ChunkThread t) {
  if (row >= t.rows) return block(0.0f, 0.0f);
  device const float* from = x + row * stride + b * 8 + t.at.column;
  return block(from[0], from[1]);
}

METAL_FUNC void load_triangle(thread Triangle& X, device const float* x, uint stride, ChunkThread t) {
  clear(X);
  MLXTS_UNROLL
  for (uint b = 0; b < 8; ++b) {
    if (b < 4 && b < t.strips.topBlocks) X.top[b] = load_x(x, stride, t.topRow, b, t);
    if (b < t.strips.bottomBlocks) X.bottom[b] = load_x(x, stride, t.bottomRow, b, t);
  }
}

// Columns of X · panel; `to` is that of the first.
template <typename T, uint Stride>
METAL_FUNC void store_product(device T* to, uint stride, thread Triangle& X, threadgroup const T* panel, uint columns,
                              ChunkThread t) {
  if (t.strips.topBlocks == 0) return;
  for (uint b = 0; b * 8 < columns; ++b) {
    Block top = block(0.0f, 0.0f), bottom = block(0.0f, 0.0f);
    MLXTS_UNROLL
    for (uint m = 0; m < 8; ++m) {
      if (m >= t.strips.bottomBlocks && m >= t.strips.topBlocks) continue;
      const Block other = load_block(panel + m * 8 * Stride + b * 8, Stride, t.at);
      if (m < t.strips.bottomBlocks) multiply_add(bottom, X.bottom[m], other);
      if (m < 4 && m < t.strips.topBlocks) multiply_add(top, X.top[m], other);
    }
    const uint column = b * 8 + t.at.column;
    store_row(to, stride, t.topRow, t.rows, column, columns, top, 1.0f, true);
    store_row(to, stride, t.bottomRow, t.rows, column, columns, bottom, 1.0f, true);
  }
}

// With `Channels` each channel of a key has its own gate.
template <typename T, bool Channels>
kernel void chunk_wu(device const T* k [[buffer(CHUNK_WU_K)]], device const T* v [[buffer(CHUNK_WU_V)]],
                     device const float* beta [[buffer(CHUNK_WU_BETA)]],
                     device const float* G [[buffer(CHUNK_WU_CUMULATIVE_GATE)]],
                     device const float* GLow [[buffer(CHUNK_WU_CUMULATIVE_GATE_LOW)]],
                     device const Index* cuSeqlens [[buffer(CHUNK_WU_CU_SEQLENS)]],
                     device const float* x [[buffer(CHUNK_WU_X)]], device T* w [[buffer(CHUNK_WU_W)]],
                     device T* u [[buffer(CHUNK_WU_U)]], constant ChunkWuParams& p [[buffer(CHUNK_WU_PARAMS)]],
                     device MlxtsFault* fault [[buffer(CHUNK_WU_FAULT)]], threadgroup uchar* memory [[threadgroup(0)]],
                     uint3 group [[threadgroup_position_in_grid]], uint3 groups [[threadgroups_per_grid]],
                     uint3 size [[threads_per_threadgroup]], uint index [[thread_index_in_threadgroup]],
                     uint lane [[thread_index_in_simdgroup]], uint simdgroup [[simdgroup_index_in_threadgroup]]) {
  constexpr uint kColumns = CHUNK_WU_PANEL_BYTES / sizeof(T), kStride = kColumns + CHUNK_WU_GAP_BYTES / sizeof(T);
  const auto scratch = scratch_of(memory, p);
  const Indices cuts = {cuSeqlens, bool(p.present & CHUNK_WU_HAS_CU_SEQLENS)};
  const ChunkPlace place = threadgroup_place(p, cuts, uint3(group.x, group.y, group.z / 2), groups.x, {fault, lane},
                                             CHUNK_WU_FAULT_CU_SEQLENS, scratch.place, index);
  if (place.rows == 0) return;
  const ChunkThread t = chunk_thread(index, size.x, lane, simdgroup, place.rows, p.chunkLength);
  const uint H = p.heads, K = p.keyDim;
  const ulong cell = place.token * H + place.head;
  threadgroup T* panel = (threadgroup T*)scratch.panel;

  const bool keys = group.z & 1;
  const uint all = keys ? K : p.valueDim, stride = keys ? p.keyHeads * K : H * p.valueDim;
  const uint keyHead = key_head_of(place.head, p.headsPerKey, p.keyHeads);
  device const T* from = keys ? k + (place.token * p.keyHeads + keyHead) * K : v + cell * p.valueDim;
  device T* to = keys ? w + cell * K : u + cell * p.valueDim;
  const bool carriesLow = p.present & CHUNK_WU_HAS_CUMULATIVE_GATE_LOW;
  if (index < t.rows) {
    const ulong at = cell + index * H;
    float factor = beta[at];
    if (keys && !Channels) factor *= exp_of_sum(G[at], carriesLow ? GLow[at] : 0.0f);
    scratch.factors[index] = factor;
  }
  Triangle X;
  load_triangle(X, x + cell * p.chunkLength, H * p.chunkLength, t);
  threadgroup_barrier(mem_flags::mem_threadgroup);

  for (uint c = 0; c < all; c += kColumns) {
    const uint columns = min(kColumns, all - c);
    if (c > 0) threadgroup_barrier(mem_flags::mem_threadgroup);
    if (Channels && keys) {
      const CumulativeGateTensors gates = {G + cell * K + c, GLow + cell * K + c, carriesLow, H * K};
      stage_decayed<true, T, T, kColumns, kStride>(panel, from + c, stride, gates, columns, scratch.factors, t);
    } else {
      stage_scaled<T, kColumns, kStride>(panel, from + c, stride, columns, scratch.factors, t);
    }
    threadgroup_barrier(mem_flags::mem_threadgroup);
    store_product<T, kStride>(to + c, H * all, X, panel, columns, t);
  }
}

#define CHUNK_WU(name, T)                                                                              \
  template [[host_name("chunk_wu_" name)]] [[kernel]] decltype(chunk_wu<T, false>) chunk_wu<T, false>; \
  template [[host_name("chunk_wu_" name "_channels")]] [[kernel]] decltype(chunk_wu<T, true>) chunk_wu<T, true>;
CHUNK_WU("f32", float)
CHUNK_WU("f16", half)
CHUNK_WU("bf16", bfloat)
