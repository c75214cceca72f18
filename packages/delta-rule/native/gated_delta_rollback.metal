// One simdgroup: four rows of the state of one head, from the state before the logged tokens to that before the
// rejected ones. The updates are those of the recurrent kernel.
#include "gated_delta_rollback.params.h"
#include "metal_kernel.h"
#include "sequences.h"
#include "state_rows_metal.h"

using namespace metal;
using namespace mlxts;

static_assert(kRows == GATED_DELTA_ROLLBACK_ROWS_PER_SIMDGROUP, "the launch rule has other rows");

typedef GatedDeltaRollbackParams Params;

// A head's log; `deltas` at this simdgroup's rows.
struct Log {
  device const float* keys;
  device const float* deltas;
  device const float* gates;
};

// `count` entries of the log onto the state at `before`, E elements of each row in a lane.
template <uint E, uint Gates>
METAL_FUNC void replay(Log log, uint count, device const float* before, device float* after, uint rows, uint lane,
                       constant Params& p) {
  const uint first = lane * E, channels = Gates == 1 ? 1 : p.keyDim;
  const StateLayout layout = {p.keyDim, p.valueDim, p.rowStride, p.columnStride};
  Rows<E> state = load_rows<E>(layout, before, rows, first);
  for (uint i = 0; i < count; ++i) {
    const Share<float, E> key = load_share<float, E>(log.keys, first, p.keyDim);
    const Share<float, kRows> deltas = load_share<float, kRows>(log.deltas, 0, rows);
    Share<float, Gates> decays = load_share<float, Gates>(log.gates, Gates == 1 ? 0 : first, channels);
    for (uint c = 0; c < Gates; ++c) decays.at[c] = decay_of(decays.at[c], p.gateFactor);
    MLXTS_UNROLL
    for (uint r = 0; r < kRows; ++r) {
      decay_row(state.at[r], decays);
      update_row(state.at[r], deltas.at[r], key);
    }
    log.keys += p.keyHeads * p.keyDim;
    log.deltas += p.heads * p.valueDim;
    log.gates += p.heads * channels;
  }
  store_rows<E>(layout, after, rows, first, state);
}

template <bool Channels>
kernel void gated_delta_rollback(device const float* log_state [[buffer(GATED_DELTA_ROLLBACK_LOG_STATE)]],
                                 device const float* log_keys [[buffer(GATED_DELTA_ROLLBACK_LOG_KEYS)]],
                                 device const float* log_deltas [[buffer(GATED_DELTA_ROLLBACK_LOG_DELTAS)]],
                                 device const float* log_gates [[buffer(GATED_DELTA_ROLLBACK_LOG_GATES)]],
                                 device const Index* rejected [[buffer(GATED_DELTA_ROLLBACK_REJECTED)]],
                                 device float* final_state [[buffer(GATED_DELTA_ROLLBACK_FINAL_STATE)]],
                                 constant Params& p [[buffer(GATED_DELTA_ROLLBACK_PARAMS)]],
                                 device MlxtsFault* fault [[buffer(GATED_DELTA_ROLLBACK_FAULT)]],
                                 uint3 group [[threadgroup_position_in_grid]], uint lane [[thread_index_in_simdgroup]],
                                 uint simdgroup [[simdgroup_index_in_threadgroup]]) {
  const uint row = (group.x * GATED_DELTA_ROLLBACK_SIMDGROUPS + simdgroup) * kRows, head = group.y, sequence = group.z;
  const Indices counts = {rejected, true};
  if (row >= p.valueDim ||
      !rejected_right(counts, p.sequences, p.lastTokens, {fault, lane}, GATED_DELTA_ROLLBACK_FAULT_REJECTED))
    return;
  const StateLayout layout = {p.keyDim, p.valueDim, p.rowStride, p.columnStride};
  const uint rows = min(p.valueDim - row, kRows);
  const uint count = p.lastTokens - simd_broadcast_first(rejected_at(counts, sequence, p.lastTokens));
  const ulong token = ulong(sequence) * p.lastTokens, gate_at = token * p.heads + head;
  const ulong state_at = layout.at(ulong(sequence) * p.heads + head, row);
  const ulong key_at = (token * p.keyHeads + key_head_of(head, p.headsPerKey, p.keyHeads)) * p.keyDim;
  const Log log = {log_keys + key_at, log_deltas + gate_at * p.valueDim + row,
                   log_gates + gate_at * (Channels ? p.keyDim : 1)};
#define REPLAY(E)                                                                                                   \
  replay<power_of_two(E), Channels ? power_of_two(E) : 1>(log, count, log_state + state_at, final_state + state_at, \
                                                          rows, lane, p)
  MLXTS_FOR_SHARE(p.keyDim, REPLAY)
}

template [[host_name(
    "gated_delta_rollback_f32")]] [[kernel]] decltype(gated_delta_rollback<false>) gated_delta_rollback<false>;
template [[host_name(
    "gated_delta_rollback_f32_channels")]] [[kernel]] decltype(gated_delta_rollback<true>) gated_delta_rollback<true>;
