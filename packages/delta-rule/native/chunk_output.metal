// One threadgroup: o of one chunk of one head, a strip of 16 rows to a simdgroup. The scores stay in registers. Panels
// of q with k, then of q with the state's rows, then of vNew go through two stages of threadgroup memory in turn.
#include "channel_strips.h"
#include "chunk_output.params.h"
#include "metal_wide_chunk.h"
#ifdef MLXTS_CUDA
#include "warpgroup_output_cuda.h"
#endif

using namespace metal;
using namespace mlxts;

constant constexpr uint kPanel = CHUNK_OUTPUT_PANEL_BYTES;      // bytes of a row of q, k or h
constant constexpr uint kTileRow = tile_stride<uchar>(kPanel);  // bytes from row to row
static_assert(kChannels * sizeof(float) == kPanel, "a tile must have room for the gates of its channels");

// A stage has a tile for each of two operands, or a tile of vNew with rows of twice the bytes. It is filled, then there
// is a barrier, then it is multiplied: when it is filled again, the barrier of the other stage lies between.
struct Stages {
  threadgroup uchar* first;  // the first stage
  uint length;               // of a chunk
  uint turn;

  METAL_FUNC threadgroup uchar* next() thread { return first + turn++ % 2 * (2 * length * kTileRow); }
};

// A strip of a matrix in device memory: as many of its rows as there are.
template <typename T>
struct Rows {
  device const T* at;
  uint stride, count;
};

// A chunk of one head in device memory, each operand from this simdgroup's strip on, and the state before it.
template <typename T>
struct Chunk {
  Rows<T> q, k, vNew;
  device const T* h;
  CumulativeGateTensors G;
  uint K, V;
};

// A strip of q, decayed since the chunk's beginning, on its way into a tile.
struct Decayed {
  CumulativeGateTensors G;
  uint rows, columns;

  METAL_FUNC float4 operator()(uint row, uint column, float4 v) const thread {
    if (row >= rows || column >= columns) return float4(0.0f);
    return v * exp4_of_sum(high4(G, row, column), low4(G, row, column));
  }
};

struct Unchanged {
  METAL_FUNC float4 operator()(uint, uint, float4 v) const thread { return v; }
};

// sums[j] += left · (rows 16 j … 16 j + 15 of all that simdgroups bring of `right`)ᵀ, for j < count. With `Decays` the
// left operand is decayed.
template <bool Decays, typename E, typename T>
METAL_FUNC void multiply_panels(thread StripSum (&sums)[kStrips], Rows<T> left, Rows<T> right, uint K, uint count,
                                CumulativeGateTensors G, thread Stages& stages, Strip s) {
  constexpr uint kColumns = kPanel / sizeof(E), kStride = tile_stride<E>(kColumns);
  const uint own = s.first * kStride;
  StripCopy<T, E, kColumns> leftCopy, rightCopy;
  leftCopy.start(left.at, left.stride, left.count, K, s.lane);
  rightCopy.start(right.at, right.stride, right.count, K, s.lane);
  for (uint c = 0; c < K; c += kColumns) {
    threadgroup E* leftTile = (threadgroup E*)stages.next();
    threadgroup E* rightTile = leftTile + stages.length * kStride;
    if (Decays)
      leftCopy.finish(leftTile + own, s.lane, Decayed{gates_from(G, c), left.count, K - c});
    else
      leftCopy.finish(leftTile + own, s.lane);
    rightCopy.finish(rightTile + own, s.lane);
    threadgroup_barrier(mem_flags::mem_threadgroup);
    const uint next = c + kColumns;
    if (next < K) {
      leftCopy.start(left.at + next, left.stride, left.count, K - next, s.lane);
      rightCopy.start(right.at + next, right.stride, right.count, K - next, s.lane);
    }
    if (s.rows == 0) continue;
    for (uint i = 0; i < min(kColumns, K - c); i += 16) {
      TileLeft<E, kStrip, 16> part;
      load(part, leftTile + own + i, kStride);
      add_products(sums, part, rightTile + i, kStride, count);
    }
  }
}

// A strip of q · kᵀ up to the diagonal, with the gates between its tokens, rounded.
template <typename T, bool Channels>
METAL_FUNC void make_scores(thread TileLeft<T, kStrip, kStrip> (&scores)[kStrips], Chunk<T> chunk,
                            ChunkOutputScratch scratch, thread Stages& stages, Strip s) {
  const CumulativeGates G = {scratch.cumulativeGateHigh, scratch.cumulativeGateLow};
  StripSum sums[kStrips];
  clear(sums);
  if (Channels) {
    threadgroup uchar* tiles = scratch.tiles;
    const uint tile = stages.length * kTileRow;
    const ChannelTiles<T> panel = {(threadgroup T*)tiles,
                                   (threadgroup T*)(tiles + tile),
                                   {(threadgroup float*)(tiles + 2 * tile), (threadgroup float*)(tiles + 3 * tile)},
                                   scratch.decayed};
    sum_channel_products(sums, {chunk.q.at, chunk.k.at, chunk.q.stride, chunk.K, chunk.G}, panel, Unchanged(), s);
    threadgroup_barrier(mem_flags::mem_threadgroup);  // both stages have been used
  } else {
    stage_gates(G, chunk.G, s);
    multiply_panels<false, T>(sums, chunk.q, chunk.k, chunk.K, s.number + 1, chunk.G, stages, s);
  }
  MLXTS_UNROLL for (uint j = 0; j < kStrips; ++j) {
    if (j > s.number) continue;
    MLXTS_UNROLL for (uint i = 0; i < kElements; ++i) {
      const Element at = element_of(i, s);
      const uint row = s.first + at.row, column = j * kStrip + at.column;
      thread float& score = sums[j].at(at.r, at.c, at.e);
      if (column > row || at.row >= s.rows)
        score = 0.0f;
      else if (!Channels)
        score *= decay_between(G, row, column);
    }
    scores[j] = as_left<T>(sums[j]);
  }
}

// A strip of vNew on its way, and its product with the scores.
template <typename T>
struct Values {
  enum : uint { kColumns = 2 * kPanel / sizeof(T), kStride = tile_stride<T>(kColumns) };
  static_assert(kStride * sizeof(T) <= 2 * kTileRow, "a tile of vNew must fit a stage");
  Rows<T> vNew;
  uint columns;
  StripCopy<T, T, kColumns> copy;

  METAL_FUNC void start(uint c, Strip s) thread {
    copy.start(vNew.at + c, vNew.stride, vNew.count, columns - c, s.lane);
  }
  METAL_FUNC void multiply(thread StripSum (&out)[kStrips], thread const TileLeft<T, kStrip, kStrip> (&scores)[kStrips],
                           thread Stages& stages, Strip s) thread {
    MLXTS_UNROLL for (uint c = 0; c < kStrips * kStrip; c += kColumns) {
      if (c >= columns) continue;
      threadgroup T* tile = (threadgroup T*)stages.next();
      copy.finish(tile + s.first * kStride, s.lane);
      threadgroup_barrier(mem_flags::mem_threadgroup);
      if (c + kColumns < columns) start(c + kColumns, s);
      MLXTS_UNROLL for (uint m = 0; m < kStrips; ++m) {
        if (m > s.number || s.rows == 0) continue;
        MLXTS_UNROLL for (uint i = 0; i < kColumns; i += kStrip) {
          if (c + i >= columns) continue;
          TileRight<T, kStrip, kStrip> right;
          load(right, tile + m * kStrip * kStride + i, kStride);
          multiply_add(out[(c + i) / kStrip], scores[m], right);
        }
      }
    }
  }
};

// This lane's rows of the output: what is left of the state at their tokens, and whether the mask keeps them.
struct OutputRows {
  float decays[2];
  bool kept[2];
};

template <bool Channels>
METAL_FUNC OutputRows output_rows(CumulativeGateTensors G, device const uchar* mask, bool masked, Strip s) {
  OutputRows own;
  MLXTS_UNROLL for (uint r = 0; r < 2; ++r) {
    const uint row = 8 * r + s.row;
    own.decays[r] = Channels || row >= s.rows ? 1.0f : decay_at(G, row);
    own.kept[r] = !masked || row >= s.rows || mask[row] != 0;
  }
  return own;
}

// The output for the values from `v` on, as many as a whole chunk has tokens. Decayed keys are multiplied in E.
template <typename E, bool Channels, typename T>
METAL_FUNC void output_values(Chunk<T> chunk, thread const TileLeft<T, kStrip, kStrip> (&scores)[kStrips], uint v,
                              OutputRows own, float scale, device T* o, thread Stages& stages, Strip s) {
  const uint columns = min(stages.length, chunk.V - v), count = (columns + kStrip - 1) / kStrip;
  const Rows<T> states = {chunk.h + ulong(v + s.first) * chunk.K, chunk.K, rows_from(s.first, columns)};
  Values<T> values;
  values.vNew = {chunk.vNew.at + v, chunk.vNew.stride, s.rows};
  values.columns = columns;
  values.start(0, s);
  StripSum out[kStrips];
  clear(out);
  multiply_panels<Channels, E>(out, chunk.q, states, chunk.K, count, chunk.G, stages, s);
  MLXTS_UNROLL for (uint j = 0; j < kStrips; ++j) {
    if (!Channels) scale_rows(out[j], own.decays);
  }
  values.multiply(out, scores, stages, s);
  MLXTS_UNROLL for (uint j = 0; j < kStrips; ++j) {
    if (j >= count) continue;
    MLXTS_UNROLL for (uint i = 0; i < kElements; ++i) {
      const Element at = element_of(i, s);
      thread float& value = out[j].at(at.r, at.c, at.e);
      value = own.kept[at.r] ? value * scale : 0.0f;
    }
    store_strip(out[j], o + v + j * kStrip, chunk.vNew.stride, columns - j * kStrip, s);
  }
}

// The tensors of a call.
template <typename T>
struct OutputCall {
  device const T *q, *k, *vNew, *h;
  device const float *G, *GLow;
  device const uchar* mask;
  device T* o;

  // Of a chunk with one gate a head.
  METAL_FUNC OutputTensors<T> tensors(constant ChunkOutputParams& p, ChunkPlace place) const thread {
    const uint H = p.heads, K = p.keyDim, V = p.valueDim;
    const ulong first = place.token * H + place.head;
    const ulong keys = (place.token * p.keyHeads + key_head_of(place.head, p.headsPerKey, p.keyHeads)) * K;
    return {q + keys,
            k + keys,
            vNew + first * V,
            h + (ulong(place.slot) * H + place.head) * V * K,
            o + first * V,
            {G + first, GLow + first, bool(p.present & CHUNK_OUTPUT_HAS_CUMULATIVE_GATE_LOW), H},
            p.present & CHUNK_OUTPUT_HAS_MASK ? mask + place.token : nullptr,
            V,
            K,
            p.keyHeads * K,
            H * V,
            p.scale,
            p.qkNorm != 0,
            {p.eps, p.normFloor}};
  }
};

// With `Channels` each channel of a key has its own gate. E is what q and the state are multiplied in.
template <typename T, typename E, bool Channels>
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
                         uint3 groups [[threadgroups_per_grid]], uint index [[thread_index_in_threadgroup]],
                         uint lane [[thread_index_in_simdgroup]], uint simdgroup [[simdgroup_index_in_threadgroup]]) {
  const auto scratch = scratch_of(memory, p);
  const Indices cuts = {cuSeqlens, bool(p.present & CHUNK_OUTPUT_HAS_CU_SEQLENS)};
  const ChunkPlace place =
      threadgroup_place(p, cuts, group, groups.x, {fault, lane}, CHUNK_OUTPUT_FAULT_CU_SEQLENS, scratch.place, index);
  if (place.rows == 0) return;
  const Strip s = strip_of(simdgroup, lane, place.rows);
  const uint H = p.heads, K = p.keyDim, V = p.valueDim, gates = Channels ? K : 1;
  const ulong token = place.token + s.first, cell = token * H + place.head;
  const ulong keyCell = (token * p.keyHeads + key_head_of(place.head, p.headsPerKey, p.keyHeads)) * K;
  const uint keyStride = p.keyHeads * K, valueStride = H * V;
  const bool masked = p.present & CHUNK_OUTPUT_HAS_MASK;
  const bool carriesLow = p.present & CHUNK_OUTPUT_HAS_CUMULATIVE_GATE_LOW;
  const Chunk<T> chunk = {{q + keyCell, keyStride, s.rows},
                          {k + keyCell, keyStride, s.rows},
                          {vNew + cell * V, valueStride, s.rows},
                          h + (ulong(place.slot) * H + place.head) * V * K,
                          {G + cell * gates, GLow + cell * gates, carriesLow, H * gates},
                          K,
                          V};
  if (!Channels && p.wide != 0) {
    const OutputTensors<T> tensors = OutputCall<T>{q, k, vNew, h, G, GLow, mask, o}.tensors(p, place);
    const CumulativeGates staged = {scratch.cumulativeGateHigh, scratch.cumulativeGateLow};
    if (wide_output(tensors, scratch.tiles, staged, s, place.rows, index)) return;
  }
  const OutputRows own = output_rows<Channels>(chunk.G, mask + token, masked, s);
  TileLeft<T, kStrip, kStrip> scores[kStrips];
  Stages stages = {scratch.tiles, p.chunkLength, 0};
  make_scores<T, Channels>(scores, chunk, scratch, stages, s);
  for (uint v = 0; v < V; v += p.chunkLength)
    output_values<E, Channels>(chunk, scores, v, own, p.scale, o + cell * V, stages, s);
}

#ifdef MLXTS_CUDA
// One threadgroup: outputs of one whole chunk of one head, see warpgroup_output_cuda.h; three have the registers of so
// many threads.
[[max_total_threads_per_threadgroup(384)]] kernel void chunk_output_bf16_warpgroups(
    device const bfloat* q [[buffer(CHUNK_OUTPUT_Q)]], device const bfloat* k [[buffer(CHUNK_OUTPUT_K)]],
    device const bfloat* vNew [[buffer(CHUNK_OUTPUT_V_NEW)]], device const bfloat* h [[buffer(CHUNK_OUTPUT_H)]],
    device const float* G [[buffer(CHUNK_OUTPUT_CUMULATIVE_GATE)]],
    device const float* GLow [[buffer(CHUNK_OUTPUT_CUMULATIVE_GATE_LOW)]],
    device const Index* cuSeqlens [[buffer(CHUNK_OUTPUT_CU_SEQLENS)]],
    device const uchar* mask [[buffer(CHUNK_OUTPUT_MASK)]], device bfloat* o [[buffer(CHUNK_OUTPUT_O)]],
    constant ChunkOutputParams& p [[buffer(CHUNK_OUTPUT_PARAMS)]],
    device MlxtsFault* fault [[buffer(CHUNK_OUTPUT_FAULT)]], threadgroup uchar* memory [[threadgroup(0)]],
    uint3 group [[threadgroup_position_in_grid]], uint3 groups [[threadgroups_per_grid]],
    uint index [[thread_index_in_threadgroup]], uint lane [[thread_index_in_simdgroup]],
    uint simdgroup [[simdgroup_index_in_threadgroup]]) {
  const auto scratch = scratch_of(memory, p);
  const Indices cuts = {cuSeqlens, bool(p.present & CHUNK_OUTPUT_HAS_CU_SEQLENS)};
  const ChunkPlace place =
      threadgroup_place(p, cuts, group, groups.x, {fault, lane}, CHUNK_OUTPUT_FAULT_CU_SEQLENS, scratch.place, index);
  if (place.rows == 0) return;
  const OutputTensors<bfloat> m = OutputCall<bfloat>{q, k, vNew, h, G, GLow, mask, o}.tensors(p, place);
  const OutputMemory staged = {scratch.tiles, {scratch.cumulativeGateHigh, scratch.cumulativeGateLow}};
  make_warpgroup_output(m, staged, place.rows, index, lane, simdgroup);
}
#endif

#define CHUNK_OUTPUT(name, T)                                                                                       \
  template                                                                                                          \
      [[host_name("chunk_output_" name)]] [[kernel]] decltype(chunk_output<T, T, false>) chunk_output<T, T, false>; \
  template [[host_name("chunk_output_" name                                                                         \
                       "_channels")]] [[kernel]] decltype(chunk_output<T, float, true>) chunk_output<T, float, true>;
CHUNK_OUTPUT("f32", float)
CHUNK_OUTPUT("f16", half)
CHUNK_OUTPUT("bf16", bfloat)
