// One threadgroup: a block of value rows of one head, from the state before the logged tokens to that before the
// rejected ones. The updates are those of the recurrent kernel.
#include "cpu_kernel.h"
#include "gated_delta_rollback.params.h"
#include "sequences.h"
#include "simd.h"
#include "state_rows.h"

using namespace mlxts;

namespace {

// A row of the state: S ← decay·S + delta·k.
template <bool Channels>
MLXTS_INLINE void update_row(float* row, size_t K, const float* key, float decay, const float* decays, float delta) {
  const vf32 all = splat(decay), change = splat(delta);
  const auto kept = [&](size_t c) { return Channels ? load(decays + c) : all; };
  for_lanes(
      K, [&](size_t c) { store(row + c, next_state(load(row + c), kept(c), change, load(key + c))); },
      [&](size_t c, int n) {
        store_partial(row + c, next_state(load_partial(row + c, n), kept(c), change, load(key + c)), n);
      });
}

template <bool Channels>
int32_t gated_delta_rollback(const Launch& l) {
  const auto& p = l.args<GatedDeltaRollbackParams>();
  const Indices rejected = l.indices(GATED_DELTA_ROLLBACK_REJECTED);
  if (!rejected_right(rejected, p.sequences, p.lastTokens, l, GATED_DELTA_ROLLBACK_FAULT_REJECTED)) return 1;
  const float* log_state = l.buffer<const float>(GATED_DELTA_ROLLBACK_LOG_STATE);
  const float* log_keys = l.buffer<const float>(GATED_DELTA_ROLLBACK_LOG_KEYS);
  const float* log_deltas = l.buffer<const float>(GATED_DELTA_ROLLBACK_LOG_DELTAS);
  const float* log_gates = l.buffer<const float>(GATED_DELTA_ROLLBACK_LOG_GATES);
  float* final_state = l.buffer<float>(GATED_DELTA_ROLLBACK_FINAL_STATE);
  const size_t K = p.keyDim, V = p.valueDim, H = p.heads, gates = Channels ? K : 1;
  const StateLayout layout{K, V, p.rowStride, p.columnStride};
  constexpr size_t kRows = GATED_DELTA_ROLLBACK_ROWS_PER_THREADGROUP;
  const auto scratch = scratch_of(l, p);
  // Zeros after the last element, up to a whole vector.
  memset(scratch.key, 0, round_up(K, kLanes) * sizeof(float));
  if (Channels) memset(scratch.decays, 0, round_up(K, kLanes) * sizeof(float));
  for (uint64_t group = l.begin; group < l.end; ++group) {
    const size_t block = group % l.threadgroups[0], head = group / l.threadgroups[0] % H;
    const size_t sequence = group / l.threadgroups[0] / H;
    const size_t v0 = block * kRows, rows = V - v0 < kRows ? V - v0 : kRows;
    const size_t key_head = key_head_of(head, p.headsPerKey, p.keyHeads);
    const size_t state_at = layout.at(sequence * H + head, v0);
    const size_t count = p.lastTokens - rejected_at(rejected, sequence, p.lastTokens);
    load_rows(layout, log_state + state_at, rows, scratch.state);
    for (size_t i = 0; i < count; ++i) {
      const size_t token_at = sequence * p.lastTokens + i, head_at = token_at * H + head;
      memcpy(scratch.key, log_keys + (token_at * p.keyHeads + key_head) * K, K * sizeof(float));
      const float* gate = log_gates + head_at * gates;
      if constexpr (Channels) decays_of(scratch.decays, gate, K, p.gateFactor);
      const float decay = Channels ? 1.0f : decay_of(*gate, p.gateFactor);
      const float* delta = log_deltas + head_at * V + v0;
      for (size_t r = 0; r < rows; ++r)
        update_row<Channels>(scratch.state + r * K, K, scratch.key, decay, scratch.decays, delta[r]);
    }
    store_rows(layout, scratch.state, rows, final_state + state_at);
  }
  return 0;
}

}  // namespace

MLXTS_KERNEL(gated_delta_rollback_f32, gated_delta_rollback<false>)
MLXTS_KERNEL(gated_delta_rollback_f32_channels, gated_delta_rollback<true>)
