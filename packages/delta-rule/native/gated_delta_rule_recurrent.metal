// One simdgroup: four rows of one head's state, in registers from the first token to the last. A row lies across
// the lanes, a few neighboring elements in each.
#include "delta_gates_metal.h"
#include "gated_delta_rule_recurrent.params.h"
#include "metal_kernel.h"
#include "sequences.h"
#include "state_rows_metal.h"

using namespace metal;
using namespace mlxts;

static_assert(kRows == GATED_DELTA_RULE_RECURRENT_ROWS_PER_SIMDGROUP && kRows == 4, "sums of the rows are a float4");

typedef GatedDeltaRuleRecurrentParams Params;

template <typename T, uint E>
METAL_FUNC Share<float, E> widen(Share<T, E> narrow) {
  Share<float, E> wide;
  for (uint i = 0; i < E; ++i) wide.at[i] = float(narrow.at[i]);
  return wide;
}

// This lane's part of a dot product.
template <uint E>
METAL_FUNC float dot_share(Share<float, E> a, Share<float, E> b) {
  float sum = 0.0f;
  for (uint i = 0; i < E; ++i) sum = fma(a.at[i], b.at[i], sum);
  return sum;
}

template <uint E>
METAL_FUNC void multiply(thread Share<float, E>& share, float factor) {
  for (uint i = 0; i < E; ++i) share.at[i] *= factor;
}

// The next token of a head, in the inputs; `v` at this simdgroup's rows. Where gates are computed, what they and beta are
// computed from has dtype G.
template <typename T, typename G>
struct Tokens {
  device const T* q;
  device const T* k;
  device const T* v;
  device const G* g;
  device const G* beta;
};

// A token as it was read, so that it is on its way while another one is used. A head has one gate (`Gates` is 1), or each
// lane those of its elements.
template <typename T, typename G, uint E, uint Gates>
struct Token {
  Share<T, E> q, k;
  Share<T, kRows> v;
  Share<G, Gates> g;
  G beta;
};

template <typename T, typename G, uint E, uint Gates>
METAL_FUNC Token<T, G, E, Gates> next_token(thread Tokens<T, G>& from, uint first, uint rows, constant Params& p) {
  const uint channels = Gates == 1 ? 1 : p.keyDim;
  Token<T, G, E, Gates> token = {load_share<T, E>(from.q, first, p.keyDim), load_share<T, E>(from.k, first, p.keyDim),
                              load_share<T, kRows>(from.v, 0, rows),
                              load_share<G, Gates>(from.g, Gates == 1 ? 0 : first, channels), *from.beta};
  from.q += p.keyHeads * p.keyDim;
  from.k += p.keyHeads * p.keyDim;
  from.v += p.heads * p.valueDim;
  from.g += p.heads * channels;
  from.beta += p.heads;
  return token;
}

// A simdgroup's rows, and their tokens.
struct Work {
  uint sequence, head, row, rows, lane;
  Sequence tokens;
};

// The outputs that keep states, and tokens on the way; `present` says which of them are there.
struct Kept {
  device float* final_state;
  device float* snapshots;
  device float* last_states;
  device float* log_state;
  device float* log_keys;
  device float* log_deltas;
  device float* log_gates;
  uint first_snapshot;
};

METAL_FUNC StateLayout layout_of(constant Params& p) { return {p.keyDim, p.valueDim, p.rowStride, p.columnStride}; }

// Where these rows of state `index` of a tensor are.
METAL_FUNC device float* rows_of(device float* states, ulong index, Work w, constant Params& p) {
  return states + layout_of(p).at(index * p.heads + w.head, w.row);
}

// The outputs that a state may have to be stored in.
constant constexpr uint kPlaces = 4;

// The place in one of them of the state after `done` tokens; null if it is not stored there.
METAL_FUNC device float* place_of(uint place, Kept kept, Work w, uint start, uint done, constant Params& p) {
  const uint left = w.tokens.tokens - done;
  if (place == 0 && left == 0 && (p.present & GATED_DELTA_RULE_RECURRENT_HAS_FINAL_STATE))
    return rows_of(kept.final_state, w.sequence, w, p);
  if (place == 1 && left < p.lastTokens && (p.present & GATED_DELTA_RULE_RECURRENT_HAS_LAST_STATES))
    return rows_of(kept.last_states, ulong(w.sequence) * p.lastTokens + left, w, p);
  if (place == 2 && left == min(w.tokens.tokens, p.lastTokens) &&
      (p.present & GATED_DELTA_RULE_RECURRENT_HAS_LOG_STATE))
    return rows_of(kept.log_state, w.sequence, w, p);
  if (place == 3 && done > start && (p.present & GATED_DELTA_RULE_RECURRENT_HAS_SNAPSHOTS) &&
      done % p.snapshotEvery == 0)
    return rows_of(kept.snapshots, kept.first_snapshot + done / p.snapshotEvery - 1, w, p);
  return nullptr;
}

// Whether this simdgroup writes its key to the log: of several heads that share a key the first one does.
METAL_FUNC bool logs_key(Work w, constant Params& p) {
  return w.row == 0 && w.head % p.headsPerKey == 0 && w.head / p.headsPerKey < p.keyHeads;
}

// Entry `index` of the log.
template <uint E, uint Gates>
METAL_FUNC void store_entry(Kept kept, Work w, uint index, Share<float, E> key, float delta, Share<float, Gates> gates,
                            constant Params& p) {
  const ulong at = ulong(w.sequence) * p.lastTokens + index, head_at = at * p.heads + w.head;
  const uint first = w.lane * E;
  if (w.lane < w.rows) kept.log_deltas[head_at * p.valueDim + w.row + w.lane] = delta;
  if (Gates > 1) {
    if (w.row == 0) store_share<Gates>(kept.log_gates + head_at * p.keyDim, first, p.keyDim, gates);
  } else if (w.row == 0 && w.lane == 0) {
    kept.log_gates[head_at] = gates.at[0];
  }
  if (logs_key(w, p))
    store_share<E>(kept.log_keys + (at * p.keyHeads + w.head / p.headsPerKey) * p.keyDim, first, p.keyDim, key);
}

// The entry of a token that changes nothing.
METAL_FUNC void store_no_entry(Kept kept, Work w, uint index, uint channels, constant Params& p) {
  const ulong at = ulong(w.sequence) * p.lastTokens + index, head_at = at * p.heads + w.head;
  if (w.lane < w.rows) kept.log_deltas[head_at * p.valueDim + w.row + w.lane] = kNoDelta;
  for (uint c = w.lane; c < channels && w.row == 0; c += kSimd)
    kept.log_gates[head_at * channels + c] = neutral_gate(p.gateFactor);
  for (uint c = w.lane; c < p.keyDim && logs_key(w, p); c += kSimd)
    kept.log_keys[(at * p.keyHeads + w.head / p.headsPerKey) * p.keyDim + c] = 0.0f;
}

// The states and entries of a sequence that has fewer tokens than are kept: zeros, and tokens that change nothing.
METAL_FUNC void fill(Kept kept, Work w, uint channels, constant Params& p) {
  if (p.present & GATED_DELTA_RULE_RECURRENT_HAS_LAST_STATES)
    for (uint slot = w.tokens.tokens + 1; slot < p.lastTokens; ++slot) {
      device float* rows = rows_of(kept.last_states, ulong(w.sequence) * p.lastTokens + slot, w, p);
      for (uint r = 0; r < w.rows; ++r)
        for (uint c = w.lane; c < p.keyDim; c += kSimd) rows[r * p.rowStride + ulong(c) * p.columnStride] = 0.0f;
    }
  if (p.present & GATED_DELTA_RULE_RECURRENT_HAS_LOG_KEYS)
    for (uint index = 0; index + w.tokens.tokens < p.lastTokens; ++index) store_no_entry(kept, w, index, channels, p);
}

// The number of the row that this lane stores: each of the first kRows lanes has one.
METAL_FUNC float own_row(float4 rows, uint lane) {
  const float2 two = lane < 2 ? float2(rows[0], rows[1]) : float2(rows[2], rows[3]);
  return lane % 2 == 0 ? two[0] : two[1];
}

// How the gate of a head is computed.
struct GateParameters {
  float log_rate, dt_bias;
};

// What a token leaves besides the state.
template <uint E, uint Gates>
struct Used {
  Share<float, E> key;
  Share<float, Gates> gates;
  float4 errors, seen;  // of the rows
};

template <bool Computed, uint E, uint Gates, typename T, typename G>
METAL_FUNC Used<E, Gates> use_token(thread Rows<E>& state, Token<T, G, E, Gates> token, GateParameters head,
                                    constant Params& p) {
  Share<float, E> q = widen(token.q), k = widen(token.k);
  if (p.qkNorm) {
    const float2 lengths = precise::sqrt(simd_sum(float2(dot_share(q, q), dot_share(k, k))) + p.eps);
    multiply(q, 1.0f / (lengths[0] < p.normFloor ? p.normFloor : lengths[0]));
    multiply(k, 1.0f / (lengths[1] < p.normFloor ? p.normFloor : lengths[1]));
  }
  Share<float, Gates> gates = widen(token.g), decays;
  float beta = float(token.beta);
  if (Computed) {
    gates.at[0] = gate_of(gates.at[0] + head.dt_bias, head.log_rate, p.lowerBound);
    beta = beta_of(beta, p.betaScale);
  }
  for (uint i = 0; i < Gates; ++i) decays.at[i] = decay_of(gates.at[i], p.gateFactor);
  float4 predicted, seen, errors;
  MLXTS_UNROLL
  for (uint r = 0; r < kRows; ++r) {
    decay_row(state.at[r], decays);
    predicted[r] = dot_share(state.at[r], k);
  }
  predicted = simd_sum(predicted);
  MLXTS_UNROLL
  for (uint r = 0; r < kRows; ++r) {
    errors[r] = beta * (float(token.v.at[r]) - predicted[r]);
    update_row(state.at[r], errors[r], k);
    seen[r] = dot_share(state.at[r], q);
  }
  return {k, gates, errors, simd_sum(seen) * p.scale};
}

// The rows of the state before a sequence's first token.
template <uint E>
METAL_FUNC Rows<E> first_rows(device const float* initial, Work w, constant Params& p) {
  const uint given = p.present & GATED_DELTA_RULE_RECURRENT_HAS_INITIAL_STATE ? w.rows : 0;
  const StateLayout layout = layout_of(p);
  return load_rows<E>(layout, initial + layout.at(ulong(w.sequence) * p.heads + w.head, w.row), given, w.lane * E);
}

// Whether a lane's elements of these rows are whole vectors of four, in a place where such a vector is one access.
template <uint E>
METAL_FUNC bool are_vectors(device const float* rows, Work w, constant Params& p) {
  return E % 4 == 0 && p.keyDim == E * kSimd && p.columnStride == 1 && w.rows == kRows && aligned_to_four(rows);
}

// One token, where nothing is kept but the final state: a decode step. It has code of its own, so that few instructions
// are fetched, which takes longer than to execute them once. The state is on its way before the wait.
template <bool Computed, uint E, uint Gates, typename T, typename G>
METAL_FUNC void update_rows_once(Tokens<T, G> from, device const float* a_log, device const float* dt_bias,
                                 device const float* initial, device T* o, device float* final_state, Work w,
                                 constant Params& p) {
  const ulong at = layout_of(p).at(ulong(w.sequence) * p.heads + w.head, w.row) + w.lane * E;
  Rows<E> state;
  if (p.present & GATED_DELTA_RULE_RECURRENT_HAS_INITIAL_STATE && are_vectors<E>(initial + at, w, p)) {
    MLXTS_UNROLL for (uint r = 0; r < kRows; ++r) MLXTS_UNROLL for (uint i = 0; i < E; i += 4) {
      const float4 four = load4_at_once(initial + at + r * p.rowStride + i);
      MLXTS_UNROLL for (uint e = 0; e < 4; ++e) state.at[r].at[(i + e) % E] = four[e];
    }
  } else {
    state = first_rows<E>(initial, w, p);
  }
  GateParameters head = {0.0f, 0.0f};
  if (Computed) head = {a_log[w.head], dt_bias[w.head]};
  wait_for_kernels();
  const Token<T, G, E, Gates> token = next_token<T, G, E, Gates>(from, w.lane * E, w.rows, p);
  const float own = own_row(use_token<Computed>(state, token, head, p).seen, w.lane);
  if (w.lane < w.rows) o[w.lane] = T(own);
  if (!(p.present & GATED_DELTA_RULE_RECURRENT_HAS_FINAL_STATE)) return;
  if (!are_vectors<E>(final_state + at, w, p))
    return store_rows<E>(layout_of(p), rows_of(final_state, w.sequence, w, p), w.rows, w.lane * E, state);
  MLXTS_UNROLL for (uint r = 0; r < kRows; ++r) MLXTS_UNROLL for (uint i = 0; i < E; i += 4) {
    float4 four;
    MLXTS_UNROLL for (uint e = 0; e < 4; ++e) four[e] = state.at[r].at[(i + e) % E];
    store4_at_once(final_state + at + r * p.rowStride + i, four);
  }
}

// Whether each sequence has one token, which nothing skips, and only its final state is kept.
METAL_FUNC bool is_step(constant Params& p) {
  constexpr uint kOthers = GATED_DELTA_RULE_RECURRENT_HAS_CU_SEQLENS | GATED_DELTA_RULE_RECURRENT_HAS_MASK |
                           GATED_DELTA_RULE_RECURRENT_HAS_SNAPSHOTS;
  return p.tokens == 1 && p.lastTokens == 0 && p.chunkLength == 0 && !(p.present & kOthers);
}

// All tokens from `start` on, with E elements of each row in a lane. `from` and `o` are those of token `start`.
template <bool Computed, uint E, uint Gates, typename T, typename G>
METAL_FUNC void update_rows(Tokens<T, G> from, GateParameters head, device const float* initial,
                            device const uchar* mask, device T* o, Kept kept, Work w, uint start, constant Params& p) {
  const uint first = w.lane * E, tokens = w.tokens.tokens, channels = Gates == 1 ? 1 : p.keyDim;
  const bool masks = p.present & GATED_DELTA_RULE_RECURRENT_HAS_MASK;
  const bool logs = p.present & GATED_DELTA_RULE_RECURRENT_HAS_LOG_KEYS;
  const bool keeps = p.lastTokens > 0 || (p.present & GATED_DELTA_RULE_RECURRENT_HAS_SNAPSHOTS);
  const StateLayout layout = layout_of(p);
  Rows<E> state = first_rows<E>(initial, w, p);
  Token<T, G, E, Gates> next;
  if (start < tokens) next = next_token<T, G, E, Gates>(from, first, w.rows, p);
  for (uint t = start;; ++t) {
    if (keeps || t == tokens)
      for (uint place = 0; place < kPlaces; ++place) {
        device float* to = place_of(place, kept, w, start, t, p);
        if (to) store_rows<E>(layout, to, w.rows, first, state);
      }
    if (t == tokens) return;
    const Token<T, G, E, Gates> token = next;
    if (t + 1 < tokens) next = next_token<T, G, E, Gates>(from, first, w.rows, p);
    const bool logged = logs && t + p.lastTokens >= tokens;
    const uint entry = t + p.lastTokens - tokens;
    if (masks && mask[w.tokens.begin + t] == 0) {
      if (w.lane < w.rows) o[w.lane] = T(0.0f);
      if (logged) store_no_entry(kept, w, entry, channels, p);
    } else {
      const Used<E, Gates> used = use_token<Computed>(state, token, head, p);
      const float own = own_row(used.seen, w.lane);
      if (w.lane < w.rows) o[w.lane] = T(own);
      if (logged) store_entry<E, Gates>(kept, w, entry, used.key, own_row(used.errors, w.lane), used.gates, p);
    }
    o += p.heads * p.valueDim;
  }
}

// Token `start` of a sequence, in the inputs.
template <bool Channels, typename T, typename G>
METAL_FUNC Tokens<T, G> tokens_at(device const T* q, device const T* k, device const T* v, device const G* g,
                                  device const G* beta, Work w, uint start, constant Params& p) {
  const ulong token = ulong(w.tokens.begin) + start, gate_at = token * p.heads + w.head;
  const ulong key_at = (token * p.keyHeads + key_head_of(w.head, p.headsPerKey, p.keyHeads)) * p.keyDim;
  return {q + key_at, k + key_at, v + gate_at * p.valueDim + w.row, g + gate_at * (Channels ? p.keyDim : 1),
          beta + gate_at};
}

template <typename T, typename G, bool Channels, bool Computed>
kernel void gated_delta_rule_recurrent(device const T* q [[buffer(GATED_DELTA_RULE_RECURRENT_Q)]],
                                       device const T* k [[buffer(GATED_DELTA_RULE_RECURRENT_K)]],
                                       device const T* v [[buffer(GATED_DELTA_RULE_RECURRENT_V)]],
                                       device const G* g [[buffer(GATED_DELTA_RULE_RECURRENT_G)]],
                                       device const G* beta [[buffer(GATED_DELTA_RULE_RECURRENT_BETA)]],
                                       device const float* initial [[buffer(GATED_DELTA_RULE_RECURRENT_INITIAL_STATE)]],
                                       device const Index* cu_seqlens [[buffer(GATED_DELTA_RULE_RECURRENT_CU_SEQLENS)]],
                                       device const uchar* mask [[buffer(GATED_DELTA_RULE_RECURRENT_MASK)]],
                                       device T* o [[buffer(GATED_DELTA_RULE_RECURRENT_O)]],
                                       device float* final_state [[buffer(GATED_DELTA_RULE_RECURRENT_FINAL_STATE)]],
                                       device float* snapshots [[buffer(GATED_DELTA_RULE_RECURRENT_SNAPSHOTS)]],
                                       device float* last_states [[buffer(GATED_DELTA_RULE_RECURRENT_LAST_STATES)]],
                                       device float* log_state [[buffer(GATED_DELTA_RULE_RECURRENT_LOG_STATE)]],
                                       device float* log_keys [[buffer(GATED_DELTA_RULE_RECURRENT_LOG_KEYS)]],
                                       device float* log_deltas [[buffer(GATED_DELTA_RULE_RECURRENT_LOG_DELTAS)]],
                                       device float* log_gates [[buffer(GATED_DELTA_RULE_RECURRENT_LOG_GATES)]],
                                       device const float* a_log [[buffer(GATED_DELTA_RULE_RECURRENT_A_LOG)]],
                                       device const float* dt_bias [[buffer(GATED_DELTA_RULE_RECURRENT_DT_BIAS)]],
                                       constant Params& p [[buffer(GATED_DELTA_RULE_RECURRENT_PARAMS)]],
                                       device MlxtsFault* fault [[buffer(GATED_DELTA_RULE_RECURRENT_FAULT)]],
                                       uint3 group [[threadgroup_position_in_grid]],
                                       uint lane [[thread_index_in_simdgroup]],
                                       uint simdgroup [[simdgroup_index_in_threadgroup]]) {
  const uint row = (group.x * GATED_DELTA_RULE_RECURRENT_SIMDGROUPS + simdgroup) * kRows, head = group.y,
             sequence = group.z;
// Rows whose channels have their own gates have fewer instances: they are rarer, and each is as much text again.
#define SHARES(E) Computed, Channels ? power_of_two(E) : E, Channels ? power_of_two(E) : 1
  if (is_step(p)) {
    if (row >= p.valueDim) return wait_for_kernels();
    const Work w = {sequence, head, row, min(p.valueDim - row, kRows), lane, {sequence, 1}};
    const Tokens<T, G> from = tokens_at<Channels>(q, k, v, g, beta, w, 0, p);
    device T* to = o + (ulong(sequence) * p.heads + head) * p.valueDim + row;
#define UPDATE_ROWS_ONCE(E) return update_rows_once<SHARES(E)>(from, a_log, dt_bias, initial, to, final_state, w, p)
    // MLXTS_FOR_SHARE, without a table of places to go to: it would hide which of them wait.
    const uint share = (p.keyDim + kSimd - 1) / kSimd;
    if (share > 6) UPDATE_ROWS_ONCE(8);
    if (share > 4) UPDATE_ROWS_ONCE(6);
    if (share > 3) UPDATE_ROWS_ONCE(4);
    if (share > 2) UPDATE_ROWS_ONCE(3);
    UPDATE_ROWS_ONCE(2);
  }
  wait_for_kernels();
  const Indices cuts = {cu_seqlens, bool(p.present & GATED_DELTA_RULE_RECURRENT_HAS_CU_SEQLENS)};
  if (row >= p.valueDim ||
      !packed_right(cuts, p.sequences, p.tokens, {fault, lane}, GATED_DELTA_RULE_RECURRENT_FAULT_CU_SEQLENS))
    return;
  const Sequence tokens = sequence_at(cuts, sequence, p.tokens);
  const Work w = {sequence, head,
                  row,      min(p.valueDim - row, kRows),
                  lane,     {simd_broadcast_first(tokens.begin), simd_broadcast_first(tokens.tokens)}};
  Kept kept = {final_state, snapshots, last_states, log_state, log_keys, log_deltas, log_gates, 0};
  if (p.present & GATED_DELTA_RULE_RECURRENT_HAS_SNAPSHOTS)
    kept.first_snapshot = first_snapshot(cuts, sequence, w.tokens.tokens, p.tokens, p.snapshotEvery);
  if (p.lastTokens > 0) fill(kept, w, Channels ? p.keyDim : 1, p);
  const uint start = p.chunkLength > 0 ? chunked_tokens(w.tokens.tokens, p.chunkLength, p.lastTokens) : 0;
  const ulong value_at = ((ulong(w.tokens.begin) + start) * p.heads + head) * p.valueDim + row;
  const Tokens<T, G> from = tokens_at<Channels>(q, k, v, g, beta, w, start, p);
  GateParameters computed = {0.0f, 0.0f};
  if (Computed) computed = {a_log[head], dt_bias[head]};
#define UPDATE_ROWS(E) \
  update_rows<SHARES(E)>(from, computed, initial, mask, o + value_at, kept, w, start, p)
  MLXTS_FOR_SHARE(p.keyDim, UPDATE_ROWS)
}

#define INSTANCE(name, T, G, Channels, Computed)                        \
  template [[host_name("gated_delta_rule_recurrent_" name)]] [[kernel]] \
  decltype(gated_delta_rule_recurrent<T, G, Channels, Computed>) gated_delta_rule_recurrent<T, G, Channels, Computed>;
INSTANCE("f32", float, float, false, false)
INSTANCE("f16", half, float, false, false)
INSTANCE("bf16", bfloat, float, false, false)
INSTANCE("f32_channels", float, float, true, false)
INSTANCE("f16_channels", half, float, true, false)
INSTANCE("bf16_channels", bfloat, float, true, false)
INSTANCE("f32_gates", float, float, false, true)
INSTANCE("f16_gates", half, half, false, true)
INSTANCE("bf16_gates", bfloat, bfloat, false, true)
