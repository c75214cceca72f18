// One threadgroup: A of one chunk of one head, a strip of 16 rows to a simdgroup.
#include "channel_strips.h"
#include "chunk_kkt.params.h"

using namespace metal;
using namespace mlxts;

static_assert(CHUNK_KKT_CHANNEL_COLUMNS == kChannels, "a panel has as many channels as its tiles have columns");

// The factors of a strip's keys, `beta` from its first row on; four neighbors of one become those of β k.
struct Betas {
  device const float* beta;
  uint stride, rows;

  METAL_FUNC float at(uint row) const thread { return row < rows ? beta[row * stride] : 0.0f; }
  METAL_FUNC float4 operator()(uint row, uint, float4 keys) const thread { return keys * at(row); }
};

// One gate a head: round(β_i k_i) · k_j, of keys from this strip on. Their panels fill two tiles in turn.
template <typename T>
METAL_FUNC void sum_head_products(thread StripSum (&dots)[kStrips], device const T* k, uint stride, uint K, Betas betas,
                                  threadgroup T* tiles, uint length, Strip s) {
  constexpr uint kColumns = CHUNK_KKT_PANEL_BYTES / sizeof(T), kStride = tile_stride<T>(kColumns);
  const float factors[2] = {betas.at(s.row), betas.at(8 + s.row)};
  const uint own = s.first * kStride;
  StripCopy<T, T, kColumns> copy;
  copy.start(k, stride, s.rows, K, s.lane);
  for (uint c = 0; c < K; c += kColumns) {
    threadgroup T* tile = tiles + c / kColumns % 2 * length * kStride;
    copy.finish(tile + own, s.lane);
    threadgroup_barrier(mem_flags::mem_threadgroup);
    if (c + kColumns < K) copy.start(k + c + kColumns, stride, s.rows, K - c - kColumns, s.lane);
    if (s.rows == 0) continue;
    for (uint i = 0; i < min(kColumns, K - c); i += 16) {
      TileLeft<T, kStrip, 16> left;
      load(left, tile + own + i, kStride);
      scale_rows(left, factors);
      add_products(dots, left, tile + i, kStride, s.number + 1);
    }
  }
}

// A strip below the diagonal, zeros elsewhere; sums that have no gates yet times exp(G_i − G_j).
template <bool Channels>
METAL_FUNC void store_dots(thread const StripSum (&dots)[kStrips], CumulativeGates G, device float* a, uint stride,
                           uint length, Strip s) {
  MLXTS_UNROLL for (uint j = 0; j < kStrips; ++j) {
    if (j * kStrip >= length) continue;
    MLXTS_UNROLL for (uint i = 0; i < kElements; ++i) {
      const Element at = element_of(i, s);
      if (at.row >= s.rows) continue;
      const uint row = s.first + at.row, column = j * kStrip + at.column;
      float below = 0.0f;
      if (column < row) below = dots[j].at(at.r, at.c, at.e) * (Channels ? 1.0f : decay_between(G, row, column));
      a[at.row * stride + column] = below;
    }
  }
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
                      uint3 groups [[threadgroups_per_grid]], uint index [[thread_index_in_threadgroup]],
                      uint lane [[thread_index_in_simdgroup]], uint simdgroup [[simdgroup_index_in_threadgroup]]) {
  const auto scratch = scratch_of(memory, p);
  const Indices cuts = {cuSeqlens, bool(p.present & CHUNK_KKT_HAS_CU_SEQLENS)};
  const ChunkPlace place =
      threadgroup_place(p, cuts, group, groups.x, {fault, lane}, CHUNK_KKT_FAULT_CU_SEQLENS, scratch.place, index);
  if (place.rows == 0) return;
  const Strip s = strip_of(simdgroup, lane, place.rows);
  const uint H = p.heads, K = p.keyDim, length = p.chunkLength, gates = Channels ? K : 1;
  const ulong token = place.token + s.first, cell = token * H + place.head;
  const bool carriesLow = p.present & CHUNK_KKT_HAS_CUMULATIVE_GATE_LOW;
  const CumulativeGateTensors allGates = {G + cell * gates, GLow + cell * gates, carriesLow, H * gates};
  const uint keyHead = key_head_of(place.head, p.headsPerKey, p.keyHeads), keyStride = p.keyHeads * K;
  device const T* keys = k + (token * p.keyHeads + keyHead) * K;
  const Betas betas = {beta + cell, H, s.rows};
  const CumulativeGates headGates = {scratch.cumulativeGateHigh, scratch.cumulativeGateLow};
  threadgroup T* tiles = (threadgroup T*)scratch.keys;
  StripSum dots[kStrips];
  clear(dots);
  if (Channels) {
    const ChannelTiles<T> panel = {tiles, tiles + length * tile_stride<T>(kChannels), headGates, scratch.decayed};
    sum_channel_products(dots, {keys, keys, keyStride, K, allGates}, panel, betas, s);
  } else {
    stage_gates(headGates, allGates, s);
    sum_head_products(dots, keys, keyStride, K, betas, tiles, length, s);
  }
  store_dots<Channels>(dots, headGates, a + cell * length, H * length, length, s);
}

#define CHUNK_KKT(name, T)                                                                                \
  template [[host_name("chunk_kkt_" name)]] [[kernel]] decltype(chunk_kkt<T, false>) chunk_kkt<T, false>; \
  template [[host_name("chunk_kkt_" name "_channels")]] [[kernel]] decltype(chunk_kkt<T, true>) chunk_kkt<T, true>;
CHUNK_KKT("f32", float)
CHUNK_KKT("f16", half)
CHUNK_KKT("bf16", bfloat)
