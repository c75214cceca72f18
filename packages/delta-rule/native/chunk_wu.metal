// One threadgroup: u or w of one chunk of one head, a strip of 16 rows to a simdgroup. X stays in registers; panels of
// scaled values or keys fill two tiles of threadgroup memory in turn. Since X is f32, so are the tiles.
#include "channels_metal.h"
#include "chunk_strips.h"
#include "chunk_wu.params.h"
#ifdef MLXTS_CUDA
#include "warpgroup_wu_cuda.h"
#endif

using namespace metal;
using namespace mlxts;

constant constexpr uint kColumns = CHUNK_WU_PANEL_COLUMNS, kStride = tile_stride<float>(kColumns);

// The strip's blocks of X up to the diagonal.
METAL_FUNC void load_x(thread TileLeft<float, kStrip, kStrip> (&X)[kStrips], device const float* x, uint stride,
                       Strip s) {
  MLXTS_UNROLL for (uint j = 0; j < kStrips; ++j) {
    if (j > s.number) continue;
    StripSum block;
    MLXTS_UNROLL for (uint i = 0; i < kElements; ++i) {
      const Element at = element_of(i, s);
      const uint row = s.first + at.row, column = j * kStrip + at.column;
      block.at(at.r, at.c, at.e) = at.row < s.rows && column <= row ? x[row * stride + column] : 0.0f;
    }
    X[j] = as_left<float>(block);
  }
}

// What a strip of v or k is multiplied by on the way into a tile, which it enters rounded to T: a factor for each row,
// and for k with a gate for each channel exp of the gates.
template <typename T, bool Channels>
struct Factors {
  threadgroup const float* rows;
  bool keys;
  CumulativeGateTensors G;
  uint real, columns;

  METAL_FUNC float4 operator()(uint row, uint column, float4 v) const thread {
    if (row >= real || column >= columns) return float4(0.0f);
    float4 factor = float4(rows[row]);
    if (Channels && keys) factor *= exp4_of_sum(high4(G, row, column), low4(G, row, column));
    return round4<T>(v * factor);
  }
};

// What X is multiplied with and where the product goes, from a strip's first row on: k and w, or v and u.
template <typename T>
struct Operands {
  device const T* from;
  device T* to;
  uint fromStride, toStride, columns;
  bool keys;
};

// to = X · round(factors · from); of G the strip's gates.
template <bool Channels, typename T>
METAL_FUNC void multiply_panels(thread const TileLeft<float, kStrip, kStrip> (&X)[kStrips], Operands<T> m,
                                threadgroup const float* factors, CumulativeGateTensors G, threadgroup float* tiles,
                                uint length, Strip s) {
  StripCopy<T, float, kColumns> copy;
  copy.start(m.from, m.fromStride, s.rows, m.columns, s.lane);
  for (uint c = 0; c < m.columns; c += kColumns) {
    threadgroup float* tile = tiles + c / kColumns % 2 * length * kStride;
    const Factors<T, Channels> change = {factors, m.keys, gates_from(G, c), s.rows, m.columns - c};
    copy.finish(tile + s.first * kStride, s.lane, change);
    threadgroup_barrier(mem_flags::mem_threadgroup);
    const uint next = c + kColumns;
    if (next < m.columns) copy.start(m.from + next, m.fromStride, s.rows, m.columns - next, s.lane);
    if (s.rows == 0) continue;
    TileSum<kStrip, kColumns> sum;
    fill(sum, 0.0f);
    MLXTS_UNROLL for (uint j = 0; j < kStrips; ++j) {
      if (j > s.number) continue;
      TileRight<float, kStrip, kColumns> right;
      load(right, tile + j * kStrip * kStride, kStride);
      multiply_add(sum, X[j], right);
    }
    store_strip(sum, m.to + c, m.toStride, m.columns - c, s);
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
                     uint index [[thread_index_in_threadgroup]],
                     uint lane [[thread_index_in_simdgroup]], uint simdgroup [[simdgroup_index_in_threadgroup]]) {
  const auto scratch = scratch_of(memory, p);
  const Indices cuts = {cuSeqlens, bool(p.present & CHUNK_WU_HAS_CU_SEQLENS)};
  const ChunkPlace place = threadgroup_place(p, cuts, uint3(group.x, group.y, group.z / 2), groups.x, {fault, lane},
                                             CHUNK_WU_FAULT_CU_SEQLENS, scratch.place, index);
  if (place.rows == 0) return;
  const Strip s = strip_of(simdgroup, lane, place.rows);
  const uint H = p.heads, K = p.keyDim, V = p.valueDim, gates = Channels ? K : 1, length = p.chunkLength;
  const bool carriesLow = p.present & CHUNK_WU_HAS_CUMULATIVE_GATE_LOW;
  const uint keyHead = key_head_of(place.head, p.headsPerKey, p.keyHeads);
  // Cells of this strip's first row.
  const ulong token = place.token + s.first, cell = token * H + place.head, keyCell = token * p.keyHeads + keyHead;
  const CumulativeGateTensors ownGates = {G + cell * gates, GLow + cell * gates, carriesLow, H * gates};
  threadgroup float* factors = scratch.factors + s.first;
  TileLeft<float, kStrip, kStrip> X[kStrips];
  load_x(X, x + (place.token * H + place.head) * length, H * length, s);
  const bool keys = group.z & 1;
  if (lane < s.rows) {
    factors[lane] = beta[cell + lane * H];
    if (keys && !Channels) factors[lane] *= decay_at(ownGates, lane);
  }
  simdgroup_barrier(mem_flags::mem_threadgroup);  // others do not read these
  const Operands<T> operands = keys ? Operands<T>{k + keyCell * K, w + cell * K, p.keyHeads * K, H * K, K, keys}
                                    : Operands<T>{v + cell * V, u + cell * V, H * V, H * V, V, keys};
  multiply_panels<Channels>(X, operands, factors, ownGates, scratch.tiles, length, s);
}

#ifdef MLXTS_CUDA
// The tensors of a call.
struct WuCall {
  device const bfloat *k, *v;
  device const float *beta, *G, *GLow, *x;
  device bfloat *w, *u;

  METAL_FUNC WuTensors tensors(constant ChunkWuParams& p, ChunkPlace place) const thread {
    const uint H = p.heads, K = p.keyDim, V = p.valueDim, length = p.chunkLength;
    const ulong first = place.token * H + place.head;
    const ulong keys = (place.token * p.keyHeads + key_head_of(place.head, p.headsPerKey, p.keyHeads)) * K;
    const bool carriesLow = p.present & CHUNK_WU_HAS_CUMULATIVE_GATE_LOW;
    return {v + first * V,
            k + keys,
            p.present & CHUNK_WU_HAS_X ? x + first * length : nullptr,
            beta + first,
            u + first * V,
            w + first * K,
            {G + first, GLow + first, carriesLow, H},
            V,
            K,
            H * V,
            p.keyHeads * K,
            H * K,
            H * length,
            H};
  }
};

// One threadgroup: u and w of one whole chunk of one head, see wide_wu_cuda.h; and X, if it is not there.
[[max_total_threads_per_threadgroup(256)]] kernel void chunk_wu_bf16_wide(
    device const bfloat* k [[buffer(CHUNK_WU_K)]], device const bfloat* v [[buffer(CHUNK_WU_V)]],
    device const float* beta [[buffer(CHUNK_WU_BETA)]], device const float* G [[buffer(CHUNK_WU_CUMULATIVE_GATE)]],
    device const float* GLow [[buffer(CHUNK_WU_CUMULATIVE_GATE_LOW)]],
    device const Index* cuSeqlens [[buffer(CHUNK_WU_CU_SEQLENS)]], device const float* x [[buffer(CHUNK_WU_X)]],
    device bfloat* w [[buffer(CHUNK_WU_W)]], device bfloat* u [[buffer(CHUNK_WU_U)]],
    constant ChunkWuParams& p [[buffer(CHUNK_WU_PARAMS)]], device MlxtsFault* fault [[buffer(CHUNK_WU_FAULT)]],
    threadgroup uchar* memory [[threadgroup(0)]], uint3 group [[threadgroup_position_in_grid]],
    uint3 groups [[threadgroups_per_grid]], uint index [[thread_index_in_threadgroup]],
    uint lane [[thread_index_in_simdgroup]], uint simdgroup [[simdgroup_index_in_threadgroup]]) {
  const auto scratch = scratch_of(memory, p);
  const Indices cuts = {cuSeqlens, bool(p.present & CHUNK_WU_HAS_CU_SEQLENS)};
  const ChunkPlace place =
      threadgroup_place(p, cuts, group, groups.x, {fault, lane}, CHUNK_WU_FAULT_CU_SEQLENS, scratch.place, index);
  if (place.rows == 0) return;
  const WuTensors m = WuCall{k, v, beta, G, GLow, x, w, u}.tensors(p, place);
  make_wide_wu(m, (threadgroup bfloat*)scratch.tiles, scratch.factors, place.rows, index, lane, simdgroup);
}

// The same without X, see warpgroup_wu_cuda.h; four threadgroups have the registers of so many threads.
[[max_total_threads_per_threadgroup(512)]] kernel void chunk_wu_bf16_warpgroups(
    device const bfloat* k [[buffer(CHUNK_WU_K)]], device const bfloat* v [[buffer(CHUNK_WU_V)]],
    device const float* beta [[buffer(CHUNK_WU_BETA)]], device const float* G [[buffer(CHUNK_WU_CUMULATIVE_GATE)]],
    device const float* GLow [[buffer(CHUNK_WU_CUMULATIVE_GATE_LOW)]],
    device const Index* cuSeqlens [[buffer(CHUNK_WU_CU_SEQLENS)]], device const float* x [[buffer(CHUNK_WU_X)]],
    device bfloat* w [[buffer(CHUNK_WU_W)]], device bfloat* u [[buffer(CHUNK_WU_U)]],
    constant ChunkWuParams& p [[buffer(CHUNK_WU_PARAMS)]], device MlxtsFault* fault [[buffer(CHUNK_WU_FAULT)]],
    threadgroup uchar* memory [[threadgroup(0)]], uint3 group [[threadgroup_position_in_grid]],
    uint3 groups [[threadgroups_per_grid]], uint index [[thread_index_in_threadgroup]],
    uint lane [[thread_index_in_simdgroup]], uint simdgroup [[simdgroup_index_in_threadgroup]]) {
  const auto scratch = scratch_of(memory, p);
  const Indices cuts = {cuSeqlens, bool(p.present & CHUNK_WU_HAS_CU_SEQLENS)};
  const ChunkPlace place =
      threadgroup_place(p, cuts, group, groups.x, {fault, lane}, CHUNK_WU_FAULT_CU_SEQLENS, scratch.place, index);
  if (place.rows == 0) return;
  const WuTensors m = WuCall{k, v, beta, G, GLow, x, w, u}.tensors(p, place);
  make_warpgroup_wu(m, WuMemory(scratch.tiles, scratch.factors), place.rows, index, lane, simdgroup);
}
#endif

#define CHUNK_WU(name, T)                                                                              \
  template [[host_name("chunk_wu_" name)]] [[kernel]] decltype(chunk_wu<T, false>) chunk_wu<T, false>; \
  template [[host_name("chunk_wu_" name "_channels")]] [[kernel]] decltype(chunk_wu<T, true>) chunk_wu<T, true>;
CHUNK_WU("f32", float)
CHUNK_WU("f16", half)
CHUNK_WU("bf16", bfloat)
