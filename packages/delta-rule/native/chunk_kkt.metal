// One threadgroup: A of one chunk of one head; two rows of blocks to a simdgroup, a panel of k at a time.
#include "channels_metal.h"
#include "chunk_kkt.params.h"

using namespace metal;
using namespace mlxts;

// A row of blocks below the diagonal, zeros elsewhere; sums that have no gates yet times exp(G_i − G_j).
template <bool Channels>
METAL_FUNC void store_lower(thread Block* sums, uint strip, uint length, uint rows, Gates gates, BlockLane at,
                            device float* a, uint stride) {
  const uint row = strip * 8 + at.row;
  if (row >= rows) return;
  MLXTS_UNROLL
  for (uint b = 0; b < 8; ++b) {
    if (b * 8 >= length) continue;
    for (uint e = 0; e < 2; ++e) {
      const uint column = b * 8 + at.column + e;
      float below = 0.0f;
      if (column < row) below = sums[b].thread_elements()[e] * (Channels ? 1.0f : decay_between(gates, row, column));
      a[row * stride + column] = below;
    }
  }
}

// Rows of keys into a panel: times beta and rounded, and as they are.
template <typename T, uint Columns>
METAL_FUNC void stage_keys(ChannelPanel<T, Columns> to, device const T* k, uint stride, device const float* beta,
                           uint betaStride, uint rows, uint columns, uint index, uint threads) {
  constexpr uint kStride = Columns + 16 / sizeof(T);
  const uint all = (rows + 7) / 8 * 8 * (Columns / 4);
  for (uint i = index; i < all; i += threads) {
    const uint row = i / (Columns / 4), column = i % (Columns / 4) * 4;
    if (column >= columns) continue;
    float4 key = float4(0.0f), scaled = key;
    if (row < rows) {
      key = load4(k + row * stride + column);
      scaled = key * beta[row * betaStride];
    }
    store4_aligned(to.x + row * kStride + column, scaled);
    store4_aligned(to.y + row * kStride + column, key);
  }
}

// With `Channels` each channel of a key has its own gate.
template <typename T, bool Channels>
kernel void chunk_kkt(device const T* k [[buffer(CHUNK_KKT_K)]], device const float* beta [[buffer(CHUNK_KKT_BETA)]],
                      device const float* sum [[buffer(CHUNK_KKT_SUM)]],
                      device const float* sumLow [[buffer(CHUNK_KKT_SUM_LOW)]],
                      device const Index* cuSeqlens [[buffer(CHUNK_KKT_CU_SEQLENS)]],
                      device float* a [[buffer(CHUNK_KKT_A)]], constant ChunkKktParams& p [[buffer(CHUNK_KKT_PARAMS)]],
                      device MlxtsFault* fault [[buffer(CHUNK_KKT_FAULT)]],
                      threadgroup float* memory [[threadgroup(0)]], uint3 group [[threadgroup_position_in_grid]],
                      uint3 groups [[threadgroups_per_grid]], uint index [[thread_index_in_threadgroup]],
                      uint lane [[thread_index_in_simdgroup]], uint simdgroup [[simdgroup_index_in_threadgroup]]) {
  const Indices cuts = {cuSeqlens, bool(p.present & CHUNK_KKT_HAS_CU_SEQLENS)};
  const bool pair = p.present & CHUNK_KKT_HAS_SUM_LOW;
  const ChunkPlace place = threadgroup_place(p, cuts, group.x, groups.x, group.y, group.z, {fault, lane}, CHUNK_KKT_FAULT_CU_SEQLENS,
                                             memory, index);
  if (place.rows == 0) return;
  const uint length = p.chunkLength, threads = length * 2, H = p.heads, K = p.keyDim, keyStride = p.keyHeads * K;
  const ulong cell = place.token * H + place.head;
  device const T* from = k + (place.token * p.keyHeads + key_head_of(place.head, p.headsPerKey, p.keyHeads)) * K;
  const Gates gates = {memory, memory + length};
  const BlockLane at = block_lane(lane);
  const Strips strips = strips_of(simdgroup, length, place.rows);
  Triangle dots;
  clear(dots);
  if (Channels) {
    constexpr uint kColumns = CHUNK_KKT_CHANNEL_COLUMNS;
    const ChannelPanel<T, kColumns> panel = channel_panel<T, kColumns>(memory, length);
    const PairLane own = pair_lane(lane);
    float low = 0.0f, high = 0.0f;
    for (uint c = 0; c < K; c += kColumns) {
      const uint columns = min(kColumns, K - c);
      const ChannelGates channels = {sum + cell * K + c, sumLow + cell * K + c, pair, H * K};
      if (c > 0) threadgroup_barrier(mem_flags::mem_threadgroup);
      stage_gates(panel, channels, place.rows, columns, index, threads);
      stage_keys(panel, from + c, keyStride, beta + cell, H, place.rows, columns, index, threads);
      threadgroup_barrier(mem_flags::mem_threadgroup);
      if (strips.lowBlocks) add_channel_products<4, false>(dots.low, low, strips.low, panel, columns, at, own);
      if (strips.highBlocks) add_channel_products<8, false>(dots.high, high, strips.high, panel, columns, at, own);
    }
    place_pairs<4>(dots.low, low, strips.low, at);
    place_pairs<8>(dots.high, high, strips.high, at);
  } else {
    constexpr uint kColumns = (CHUNK_KKT_ROW_BYTES - 16) / sizeof(T), kStride = CHUNK_KKT_ROW_BYTES / sizeof(T);
    threadgroup T* keys = (threadgroup T*)(memory + 2 * length);
    stage_gates(gates, sum + cell, sumLow + cell, pair, H, place.rows, length, index);
    const uint lowRow = strips.low * 8 + at.row, highRow = strips.high * 8 + at.row;
    const float lowBeta = lowRow < place.rows ? beta[cell + lowRow * H] : 0.0f;
    const float highBeta = highRow < place.rows ? beta[cell + highRow * H] : 0.0f;
    for (uint c = 0; c < K; c += kColumns) {
      const uint columns = min(kColumns, K - c);
      if (c > 0) threadgroup_barrier(mem_flags::mem_threadgroup);
      stage_rows<T, kColumns, kStride>(keys, from + c, keyStride, place.rows, columns, index, threads);
      threadgroup_barrier(mem_flags::mem_threadgroup);
      add_products<T, kStride>(dots, strips, keys, keys, columns, lowBeta, highBeta, at);
    }
  }
  store_lower<Channels>(dots.low, strips.low, length, place.rows, gates, at, a + cell * length, H * length);
  store_lower<Channels>(dots.high, strips.high, length, place.rows, gates, at, a + cell * length, H * length);
}

#define CHUNK_KKT(name, T)                                                                                \
  template [[host_name("chunk_kkt_" name)]] [[kernel]] decltype(chunk_kkt<T, false>) chunk_kkt<T, false>; \
  template [[host_name("chunk_kkt_" name "_channels")]] [[kernel]] decltype(chunk_kkt<T, true>) chunk_kkt<T, true>;
CHUNK_KKT("f32", float)
CHUNK_KKT("f16", half)
CHUNK_KKT("bf16", bfloat)
