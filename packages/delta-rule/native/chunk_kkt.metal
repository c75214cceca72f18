// One threadgroup: A of one chunk of one head; two rows of blocks to a simdgroup, a panel of k at a time.
#include "channels_metal.h"
#include "chunk_kkt.params.h"

using namespace metal;
using namespace mlxts;

// A chunk of one head in device memory; tokens are `stride` and `betaStride` apart.
template <typename T>
struct Keys {
  device const T* k;
  device const float* beta;
  CumulativeGateTensors G;
  uint stride, betaStride;
};

// A row of blocks below the diagonal, zeros elsewhere; sums that have no gates yet times exp(G_i − G_j).
template <bool Channels>
METAL_FUNC void store_strip(thread Block* sums, uint row, CumulativeGates G, device float* a, uint stride,
                            ChunkThread t) {
  if (row >= t.rows) return;
  MLXTS_UNROLL
  for (uint b = 0; b < 8; ++b) {
    if (b * 8 >= t.length) continue;
    for (uint e = 0; e < 2; ++e) {
      const uint column = b * 8 + t.at.column + e;
      float below = 0.0f;
      if (column < row) below = sums[b].thread_elements()[e] * (Channels ? 1.0f : decay_between(G, row, column));
      a[row * stride + column] = below;
    }
  }
}

// One gate a head: round(β_i k_i) · k_j.
template <typename T>
METAL_FUNC void sum_head_products(thread Triangle& dots, Keys<T> keys, uint K, threadgroup T* panel, ChunkThread t) {
  constexpr uint kColumns = CHUNK_KKT_PANEL_BYTES / sizeof(T), kStride = kColumns + CHUNK_KKT_GAP_BYTES / sizeof(T);
  const float topBeta = t.topRow < t.rows ? keys.beta[t.topRow * keys.betaStride] : 0.0f;
  const float bottomBeta = t.bottomRow < t.rows ? keys.beta[t.bottomRow * keys.betaStride] : 0.0f;
  for (uint c = 0; c < K; c += kColumns) {
    const uint columns = min(kColumns, K - c);
    if (c > 0) threadgroup_barrier(mem_flags::mem_threadgroup);
    stage_rows<T, kColumns, kStride>(panel, keys.k + c, keys.stride, t.rows, columns, t);
    threadgroup_barrier(mem_flags::mem_threadgroup);
    add_products<T, kStride>(dots, panel, panel, columns, topBeta, bottomBeta, t);
  }
}

// Rows of keys from column c on into a panel: times beta and rounded, and as they are.
template <typename T, uint Columns, uint Gap>
METAL_FUNC void stage_keys(ChannelPanel<T, Columns, Gap> to, Keys<T> keys, uint c, uint columns, ChunkThread t) {
  const uint all = (t.rows + 7) / 8 * 8 * (Columns / 4);
  for (uint i = t.index; i < all; i += t.threads) {
    const uint row = i / (Columns / 4), column = i % (Columns / 4) * 4;
    if (column >= columns) continue;
    float4 key = float4(0.0f), scaled = key;
    if (row < t.rows) {
      key = load4(keys.k + row * keys.stride + c + column);
      scaled = key * keys.beta[row * keys.betaStride];
    }
    threadgroup T* at = to.operands + row * (2 * Columns + Gap / sizeof(T)) + column;
    store4_aligned(at, scaled);
    store4_aligned(at + Columns, key);
  }
}

// A gate for each channel: Σ_c round(β_i k_ic) k_jc exp(G_ic − G_jc).
template <typename T, uint Columns, uint Gap>
METAL_FUNC void sum_channel_products(thread Triangle& dots, Keys<T> keys, uint K, ChannelPanel<T, Columns, Gap> panel,
                                     ChunkThread t) {
  const PairLane own = pair_lane(t.lane);
  PairSums pairs = {0.0f, 0.0f};
  for (uint c = 0; c < K; c += Columns) {
    const uint columns = min(Columns, K - c);
    if (c > 0) threadgroup_barrier(mem_flags::mem_threadgroup);
    stage_gates(panel, gates_from(keys.G, c), columns, t);
    stage_keys(panel, keys, c, columns, t);
    threadgroup_barrier(mem_flags::mem_threadgroup);
    add_channel_products<false>(dots, pairs, panel, columns, own, t);
  }
  place_pairs(dots, pairs, t);
}

// With `Channels` each channel of a key has its own gate.
template <typename T, bool Channels>
kernel void chunk_kkt(device const T* k [[buffer(CHUNK_KKT_K)]], device const float* beta [[buffer(CHUNK_KKT_BETA)]],
                      device const float* G [[buffer(CHUNK_KKT_CUMULATIVE_GATE)]],
                      device const float* GLow [[buffer(CHUNK_KKT_CUMULATIVE_GATE_LOW)]],
                      device const Index* cuSeqlens [[buffer(CHUNK_KKT_CU_SEQLENS)]],
                      device float* a [[buffer(CHUNK_KKT_A)]], constant ChunkKktParams& p [[buffer(CHUNK_KKT_PARAMS)]],
                      device MlxtsFault* fault [[buffer(CHUNK_KKT_FAULT)]],
                      threadgroup uchar* memory [[threadgroup(0)]], uint3 group [[threadgroup_position_in_grid]],
                      uint3 groups [[threadgroups_per_grid]], uint3 size [[threads_per_threadgroup]],
                      uint index [[thread_index_in_threadgroup]], uint lane [[thread_index_in_simdgroup]],
                      uint simdgroup [[simdgroup_index_in_threadgroup]]) {
  const auto scratch = scratch_of(memory, p);
  const Indices cuts = {cuSeqlens, bool(p.present & CHUNK_KKT_HAS_CU_SEQLENS)};
  const ChunkPlace place =
      threadgroup_place(p, cuts, group, groups.x, {fault, lane}, CHUNK_KKT_FAULT_CU_SEQLENS, scratch.place, index);
  if (place.rows == 0) return;
  const ChunkThread t = chunk_thread(index, size.x, lane, simdgroup, place.rows, p.chunkLength);
  const uint H = p.heads, K = p.keyDim, gates = Channels ? K : 1;
  const ulong cell = place.token * H + place.head;
  const bool carriesLow = p.present & CHUNK_KKT_HAS_CUMULATIVE_GATE_LOW;
  const ulong keyCell = place.token * p.keyHeads + key_head_of(place.head, p.headsPerKey, p.keyHeads);
  const Keys<T> keys = {
      k + keyCell * K, beta + cell, {G + cell * gates, GLow + cell * gates, carriesLow, H * gates}, p.keyHeads * K, H};
  const CumulativeGates headGates = {scratch.cumulativeGateHigh, scratch.cumulativeGateLow};
  threadgroup T* panel = (threadgroup T*)scratch.keys;
  Triangle dots;
  clear(dots);
  if (Channels) {
    typedef ChannelPanel<T, CHUNK_KKT_CHANNEL_COLUMNS, CHUNK_KKT_GAP_BYTES> Panel;
    sum_channel_products(dots, keys, K, Panel{panel, scratch.cumulativeGatePanel}, t);
  } else {
    stage_gates(headGates, keys.G, t);
    sum_head_products(dots, keys, K, panel, t);
  }
  const uint stride = H * p.chunkLength;
  store_strip<Channels>(dots.top, t.topRow, headGates, a + cell * p.chunkLength, stride, t);
  store_strip<Channels>(dots.bottom, t.bottomRow, headGates, a + cell * p.chunkLength, stride, t);
}

#define CHUNK_KKT(name, T)                                                                                \
  template [[host_name("chunk_kkt_" name)]] [[kernel]] decltype(chunk_kkt<T, false>) chunk_kkt<T, false>; \
  template [[host_name("chunk_kkt_" name "_channels")]] [[kernel]] decltype(chunk_kkt<T, true>) chunk_kkt<T, true>;
CHUNK_KKT("f32", float)
CHUNK_KKT("f16", half)
CHUNK_KKT("bf16", bfloat)
