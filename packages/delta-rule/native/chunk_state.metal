// One threadgroup: some value rows of the state of one head, chunk after chunk.
#include "metal_chunk_state.h"
#ifdef MLXTS_CUDA
#include "warpgroup_state_cuda.h"
// Threads of teams: others take more, and leave fewer registers for each.
#define CHUNK_STATE_TEAMS [[max_total_threads_per_threadgroup(256)]]
#else
#define CHUNK_STATE_TEAMS
#endif

using namespace metal;
using namespace mlxts;

// The sequence of a threadgroup; a packed one that begins behind the tokens where cuSeqlens is wrong, which is reported.
METAL_FUNC Sequence threadgroup_sequence(constant ChunkStateParams& p, Indices cuSeqlens, uint sequence,
                                         FaultSearch search, threadgroup uint* agreed, uint index) {
  const Sequence at = sequence_at(cuSeqlens, sequence, p.tokens);
  if (!cuSeqlens) return at;
  const bool right = packed_right(cuSeqlens, p.sequences, p.tokens, search, CHUNK_STATE_FAULT_CU_SEQLENS);
  const uint2 first = threadgroup_first(uint2(right ? at.begin : p.tokens + 1, at.tokens), agreed, index);
  return {first.x, first.y};
}

// The tensors of a call.
template <typename T>
struct StateTensors {
  device const T *k, *w, *u;
  device const float *G, *GLow, *initialState;
  device T *h, *vNew;
  device float *finalState, *snapshots;

  // Of a sequence, with so many gates for each token.
  METAL_FUNC StateHead<T> head(constant ChunkStateParams& p, Indices cuts, uint number, uint head, Sequence sequence,
                               uint gates) const thread {
    const Chunks chunks = chunks_in(p, bool(cuts), number, sequence);
    const uint K = p.keyDim, V = p.valueDim, H = p.heads;
    const ulong cell = ulong(sequence.begin) * H + head, ofState = ulong(V) * K;
    const ulong keyCell = ulong(sequence.begin) * p.keyHeads + key_head_of(head, p.headsPerKey, p.keyHeads);
    const bool carriesLow = p.present & CHUNK_STATE_HAS_CUMULATIVE_GATE_LOW;
    const ulong state = (ulong(number) * H + head) * ofState;
    uint snapshot = 0;
    if (p.present & CHUNK_STATE_HAS_SNAPSHOTS)
      snapshot = first_snapshot(cuts, number, sequence.tokens, p.tokens, p.snapshotEvery);
    return {k + keyCell * K,
            w + cell * K,
            u + cell * V,
            {G + cell * gates, GLow + cell * gates, carriesLow, H * gates},
            h + (ulong(chunks.slot) * H + head) * ofState,
            vNew + cell * V,
            initialState + state,
            finalState + state,
            snapshots + (ulong(snapshot) * H + head) * ofState,
            chunks.tokens};
  }
};

// With `Channels` each channel of a key has its own gate.
template <typename T, uint Keys, bool Channels>
CHUNK_STATE_TEAMS kernel void chunk_state(
    device const T* k [[buffer(CHUNK_STATE_K)]], device const T* w [[buffer(CHUNK_STATE_W)]],
    device const T* u [[buffer(CHUNK_STATE_U)]], device const float* G [[buffer(CHUNK_STATE_CUMULATIVE_GATE)]],
    device const float* GLow [[buffer(CHUNK_STATE_CUMULATIVE_GATE_LOW)]],
    device const Index* cuSeqlens [[buffer(CHUNK_STATE_CU_SEQLENS)]],
    device const float* initialState [[buffer(CHUNK_STATE_INITIAL_STATE)]], device T* h [[buffer(CHUNK_STATE_H)]],
    device T* vNew [[buffer(CHUNK_STATE_V_NEW)]], device float* finalState [[buffer(CHUNK_STATE_FINAL_STATE)]],
    device float* snapshots [[buffer(CHUNK_STATE_SNAPSHOTS)]],
    constant ChunkStateParams& p [[buffer(CHUNK_STATE_PARAMS)]],
    device MlxtsFault* fault [[buffer(CHUNK_STATE_FAULT)]], threadgroup uchar* memory [[threadgroup(0)]],
    uint3 group [[threadgroup_position_in_grid]], uint index [[thread_index_in_threadgroup]],
    uint lane [[thread_index_in_simdgroup]], uint simdgroup [[simdgroup_index_in_threadgroup]]) {
  const auto scratch = scratch_of(memory, p);
  const Indices cuts = {cuSeqlens, bool(p.present & CHUNK_STATE_HAS_CU_SEQLENS)};
  const Sequence sequence = threadgroup_sequence(p, cuts, group.z, {fault, lane}, scratch.place, index);
  if (cuts && sequence.begin > p.tokens) return;
  const StateTensors<T> tensors = {k, w, u, G, GLow, initialState, h, vNew, finalState, snapshots};
  const StateHead<T> head = tensors.head(p, cuts, group.z, group.y, sequence, Channels ? p.keyDim : 1);
  pass_over<Channels, Keys>(head, p, scratch, group.x, index, lane, simdgroup);
}

#ifdef MLXTS_CUDA
// One threadgroup: 64 value rows of the state of one head, see warpgroup_state_cuda.h.
[[max_total_threads_per_threadgroup(384)]] kernel void chunk_state_bf16_warpgroups(
    device const bfloat* k [[buffer(CHUNK_STATE_K)]], device const bfloat* w [[buffer(CHUNK_STATE_W)]],
    device const bfloat* u [[buffer(CHUNK_STATE_U)]], device const float* G [[buffer(CHUNK_STATE_CUMULATIVE_GATE)]],
    device const float* GLow [[buffer(CHUNK_STATE_CUMULATIVE_GATE_LOW)]],
    device const Index* cuSeqlens [[buffer(CHUNK_STATE_CU_SEQLENS)]],
    device const float* initialState [[buffer(CHUNK_STATE_INITIAL_STATE)]], device bfloat* h [[buffer(CHUNK_STATE_H)]],
    device bfloat* vNew [[buffer(CHUNK_STATE_V_NEW)]], device float* finalState [[buffer(CHUNK_STATE_FINAL_STATE)]],
    device float* snapshots [[buffer(CHUNK_STATE_SNAPSHOTS)]],
    constant ChunkStateParams& p [[buffer(CHUNK_STATE_PARAMS)]],
    device MlxtsFault* fault [[buffer(CHUNK_STATE_FAULT)]], threadgroup uchar* memory [[threadgroup(0)]],
    uint3 group [[threadgroup_position_in_grid]], uint index [[thread_index_in_threadgroup]],
    uint lane [[thread_index_in_simdgroup]], uint simdgroup [[simdgroup_index_in_threadgroup]]) {
  const auto scratch = scratch_of(memory, p);
  const Indices cuts = {cuSeqlens, bool(p.present & CHUNK_STATE_HAS_CU_SEQLENS)};
  const Sequence sequence = threadgroup_sequence(p, cuts, group.z, {fault, lane}, scratch.place, index);
  if (cuts && sequence.begin > p.tokens) return;
  const StateTensors<bfloat> tensors = {k, w, u, G, GLow, initialState, h, vNew, finalState, snapshots};
  const StateHead<bfloat> head = tensors.head(p, cuts, group.z, group.y, sequence, 1);
  pass_by_warpgroups(head, p, scratch, group.x, index, lane, simdgroup);
}
#endif

#define CHUNK_STATE(name, T, K)                                             \
  template[[host_name("chunk_state_" name "_k" #K)]] [[kernel]]             \
  decltype(chunk_state<T, K, false>) chunk_state<T, K, false>;              \
  template[[host_name("chunk_state_" name "_k" #K "_channels")]] [[kernel]] \
  decltype(chunk_state<T, K, true>) chunk_state<T, K, true>;
#define CHUNK_STATE_KEYS(name, T) CHUNK_STATE(name, T, 64) CHUNK_STATE(name, T, 128) CHUNK_STATE(name, T, 256)
CHUNK_STATE_KEYS("f32", float)
CHUNK_STATE_KEYS("f16", half)
CHUNK_STATE_KEYS("bf16", bfloat)
