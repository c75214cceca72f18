// One threadgroup: a block of value rows of one head's state, token after token. Rows do not depend on each other; each
// token reads and writes every row once.
#include <algorithm>

#include "cpu_kernel.h"
#include "delta_gates.h"
#include "gated_delta_rule_recurrent.params.h"
#include "matrix_reduce.h"
#include "sequences.h"
#include "simd.h"
#include "state_rows.h"

using namespace mlxts;

namespace {

// A head's gates of a token: one, one for each channel, or one that is computed from the projections of a layer, and
// beta too.
enum class Gates { kOne, kChannels, kComputed };

// The elements of states, which lie one after the other, are asked for 8 KiB ahead, more than processors do by
// themselves: one token then takes two thirds of the time where states come from memory (Zen 5), and no longer where
// they lie in cache. It is done in the loop that stores: in the one before it cost time with states in cache. In the
// order of memory, not row by row, it saves another 5 %.
constexpr size_t kAhead = 2048;

// A token of one head, as the rows of its state need it.
struct Token {
  const float* k;  // [K], zeros up to a whole vector
  const float* q;
  const float* decays;  // [K], zeros likewise, where channels have their own gates; `decay` is 1 then
  float decay, beta, scale;
};

// R rows of the state: S ← decay·S + β(v − decay·S k)kᵀ, o = scale·S q. Four rows share each load of k and q.
template <int R, bool Channels>
MLXTS_INLINE void update_rows(const float* from, float* to, size_t K, const Token& token, const float* v, float* o,
                              float* delta) {
  const auto key = [&](size_t c) { return Channels ? load(token.k + c) * load(token.decays + c) : load(token.k + c); };
  vf32 dot[R][2] = {};
  size_t c = 0;
  for (; c + 2 * kLanes <= K; c += 2 * kLanes) {
    const vf32 k0 = key(c), k1 = key(c + kLanes);
    for (int r = 0; r < R; ++r) {
      dot[r][0] = fma(load(from + r * K + c), k0, dot[r][0]);
      dot[r][1] = fma(load(from + r * K + c + kLanes), k1, dot[r][1]);
    }
  }
  for (; c + kLanes <= K; c += kLanes)
    for (int r = 0; r < R; ++r) dot[r][0] = fma(load(from + r * K + c), key(c), dot[r][0]);
  if (c < K)
    for (int r = 0; r < R; ++r) dot[r][1] = fma(load_partial(from + r * K + c, K - c), key(c), dot[r][1]);
  const auto sums = [](vf32(&halves)[R][2], float* out) {
    vf32 single[4] = {};
    for (int r = 0; r < R; ++r) single[r] = halves[r][0] + halves[r][1];
    const vf32x4 all = reduce_add4(single);
    for (int r = 0; r < R; ++r) out[r] = all[r];
  };
  float predicted[R], seen[R];
  sums(dot, predicted);
  vf32 error[R];
  for (int r = 0; r < R; ++r) {
    delta[r] = token.beta * (v[r] - token.decay * predicted[r]);
    error[r] = splat(delta[r]);
  }
  const auto decay = [&, all = splat(token.decay)](size_t c) { return Channels ? load(token.decays + c) : all; };
  vf32 out[R][2] = {};
  c = 0;
  for (; c + 2 * kLanes <= K; c += 2 * kLanes)
    for (int half = 0; half < 2; ++half) {
      const size_t at = c + half * kLanes;
      const vf32 k = load(token.k + at), q = load(token.q + at), kept = decay(at);
      for (int r = 0; r < R; ++r) {
        __builtin_prefetch(from + R * at + r * kLanes + kAhead, 1);
        const vf32 s = next_state(load(from + r * K + at), kept, error[r], k);
        store(to + r * K + at, s);
        out[r][half] = fma(s, q, out[r][half]);
      }
    }
  for (; c < K; c += kLanes) {
    const int n = K - c < kLanes ? K - c : kLanes;
    const vf32 k = load(token.k + c), q = load(token.q + c), kept = decay(c);
    for (int r = 0; r < R; ++r) {
      const float* at = from + r * K + c;
      const vf32 s = next_state(n == kLanes ? load(at) : load_partial(at, n), kept, error[r], k);
      if (n == kLanes)
        store(to + r * K + c, s);
      else
        store_partial(to + r * K + c, s, n);
      out[r][1] = fma(s, q, out[r][1]);
    }
  }
  sums(out, seen);
  for (int r = 0; r < R; ++r) o[r] = token.scale * seen[r];
}

// Widens a head's vector and, if asked, divides it by its length: x / max(√(Σx² + eps), floor).
template <typename T>
void prepare(float* to, const T* from, const GatedDeltaRuleRecurrentParams& p) {
  const size_t K = p.keyDim;
  convert_row(from, K, to);
  if (!p.qkNorm) return;
  const float length = std::sqrt(sum_of_squares(to, K) + p.eps);
  const vf32 inverse = splat(1.0f / (length < p.normFloor ? p.normFloor : length));
  // What follows the last element stays 0, also where this vector is NaN.
  for_lanes(
      K, [&](size_t c) { store(to + c, load(to + c) * inverse); },
      [&](size_t c, int n) { store_partial(to + c, load(to + c) * inverse, n); });
}

// The outputs that keep states and tokens on the way; pointers are null for those that the caller does not ask for.
struct Kept {
  const GatedDeltaRuleRecurrentParams& p;
  const StateLayout layout;
  const size_t gates;  // of a head
  float *snapshots, *last_states, *log_state, *log_keys, *log_deltas, *log_gates;

  // A block of rows of one head, and its sequence.
  struct Block {
    size_t sequence, head, v0, rows, tokens, first_snapshot;
  };

  Kept(const Launch& l, const GatedDeltaRuleRecurrentParams& p, const StateLayout& layout, size_t gates)
      : p(p),
        layout(layout),
        gates(gates),
        snapshots(l.buffer<float>(GATED_DELTA_RULE_RECURRENT_SNAPSHOTS)),
        last_states(l.buffer<float>(GATED_DELTA_RULE_RECURRENT_LAST_STATES)),
        log_state(l.buffer<float>(GATED_DELTA_RULE_RECURRENT_LOG_STATE)),
        log_keys(l.buffer<float>(GATED_DELTA_RULE_RECURRENT_LOG_KEYS)),
        log_deltas(l.buffer<float>(GATED_DELTA_RULE_RECURRENT_LOG_DELTAS)),
        log_gates(l.buffer<float>(GATED_DELTA_RULE_RECURRENT_LOG_GATES)) {}

  bool any() const { return snapshots || p.lastTokens; }

  float* rows_of(float* states, size_t index, const Block& b) const {
    return states + layout.at(index * p.heads + b.head, b.v0);
  }

  // The state after `done` tokens of the sequence, where it is one of the last.
  void state(const Block& b, size_t done, const float* rows) const {
    const size_t left = b.tokens - done;
    if (last_states && left < p.lastTokens)
      store_rows(layout, rows, b.rows, rows_of(last_states, b.sequence * p.lastTokens + left, b));
    if (log_state && left == std::min<size_t>(b.tokens, p.lastTokens))
      store_rows(layout, rows, b.rows, rows_of(log_state, b.sequence, b));
  }

  void snapshot(const Block& b, size_t done, const float* rows) const {
    if (snapshots && done % p.snapshotEvery == 0)
      store_rows(layout, rows, b.rows, rows_of(snapshots, b.first_snapshot + done / p.snapshotEvery - 1, b));
  }

  // The log's entry of token t, if it is one of the last; that of a token that changes nothing where `key` is null.
  void entry(const Block& b, size_t t, const float* key, const float* delta, const float* gate) const {
    if (log_keys && t + p.lastTokens >= b.tokens) store_entry(b, t + p.lastTokens - b.tokens, key, delta, gate);
  }

  void store_entry(const Block& b, size_t index, const float* key, const float* delta, const float* gate) const {
    const size_t at = b.sequence * p.lastTokens + index, head_at = at * p.heads + b.head;
    float* deltas = log_deltas + head_at * layout.V + b.v0;
    for (size_t r = 0; r < b.rows; ++r) deltas[r] = key ? delta[r] : kNoDelta;
    if (b.v0 > 0) return;
    for (size_t c = 0; c < gates; ++c) log_gates[head_at * gates + c] = key ? gate[c] : neutral_gate(p.gateFactor);
    const size_t key_head = b.head / p.headsPerKey;  // of several heads that share a key the first one writes it
    if (b.head % p.headsPerKey > 0 || key_head >= p.keyHeads) return;
    float* keys = log_keys + (at * p.keyHeads + key_head) * layout.K;
    for (size_t c = 0; c < layout.K; ++c) keys[c] = key ? key[c] : 0.0f;
  }

  // The states and entries of a sequence that has fewer tokens than are kept: zeros, and tokens that change nothing.
  void fill(const Block& b) const {
    for (size_t slot = b.tokens + 1; last_states && slot < p.lastTokens; ++slot)
      store_zeros(layout, b.rows, rows_of(last_states, b.sequence * p.lastTokens + slot, b));
    for (size_t index = 0; log_keys && index + b.tokens < p.lastTokens; ++index)
      store_entry(b, index, nullptr, nullptr, nullptr);
  }
};

template <typename T, Gates kGates>
struct Tensors {
  using Gate = std::conditional_t<kGates == Gates::kComputed, T, float>;
  const T *q, *k, *v;
  const Gate *g, *beta;
  const float *a_log, *dt_bias;  // of heads, where gates are computed
  const float* initial_state;    // null for zeros
  const uint8_t* mask;           // null: all tokens count
  T* o;
  float* final_state;  // null where it is not asked for

  explicit Tensors(const Launch& l)
      : q(l.buffer<const T>(GATED_DELTA_RULE_RECURRENT_Q)),
        k(l.buffer<const T>(GATED_DELTA_RULE_RECURRENT_K)),
        v(l.buffer<const T>(GATED_DELTA_RULE_RECURRENT_V)),
        g(l.buffer<const Gate>(GATED_DELTA_RULE_RECURRENT_G)),
        beta(l.buffer<const Gate>(GATED_DELTA_RULE_RECURRENT_BETA)),
        a_log(l.buffer<const float>(GATED_DELTA_RULE_RECURRENT_A_LOG)),
        dt_bias(l.buffer<const float>(GATED_DELTA_RULE_RECURRENT_DT_BIAS)),
        initial_state(l.buffer<const float>(GATED_DELTA_RULE_RECURRENT_INITIAL_STATE)),
        mask(l.buffer<const uint8_t>(GATED_DELTA_RULE_RECURRENT_MASK)),
        o(l.buffer<T>(GATED_DELTA_RULE_RECURRENT_O)),
        final_state(l.buffer<float>(GATED_DELTA_RULE_RECURRENT_FINAL_STATE)) {}
};

// Where one token of a head lies in the tensors.
struct Places {
  size_t key, value, gate;
};

// The gate of a head that has one, and its beta.
struct HeadGate {
  float gate, beta;
};

// Gates and betas as they lie.
template <typename T, Gates kGates>
struct HeadGates {
  HeadGate at(const GatedDeltaRuleRecurrentParams&, const Tensors<T, kGates>& tensors, size_t at, size_t) const {
    return {kGates == Gates::kOne ? tensors.g[at] : 0.0f, tensors.beta[at]};
  }
};

// Those that are computed: of a vector of heads at once, since heads, and the blocks of each, follow each other.
template <typename T>
struct HeadGates<T, Gates::kComputed> {
  float gates[kLanes], betas[kLanes];
  size_t first = 0, count = 0;  // of those that are there

  HeadGate at(const GatedDeltaRuleRecurrentParams& p, const Tensors<T, Gates::kComputed>& tensors, size_t at,
              size_t head) {
    if (at - first >= count) {
      first = at;
      count = std::min<size_t>(p.heads - head, kLanes);
      const auto heads = [n = int(count)](auto* from) { return load_partial(from, n); };
      store(gates,
            gate_of(heads(tensors.g + at) + heads(tensors.dt_bias + head), heads(tensors.a_log + head), p.lowerBound));
      store(betas, beta_of(heads(tensors.beta + at), p.betaScale));
    }
    return {gates[at - first], betas[at - first]};
  }
};

// What scratch has of the token before: blocks of a head, and heads with one key, follow each other.
struct Prepared {
  size_t key = SIZE_MAX, gate = SIZE_MAX;  // places
  float decay = 0;
};

// One token: the rows of the state at `from` become those at `state`, and o gets what the query reads from them.
template <typename T, Gates kGates>
MLXTS_INLINE void take_token(const GatedDeltaRuleRecurrentParams& p, const Tensors<T, kGates>& tensors,
                             const GatedDeltaRuleRecurrentScratch& scratch, Prepared& prepared, Places at,
                             HeadGate head, size_t rows, const float* from, float* state) {
  constexpr bool Channels = kGates == Gates::kChannels;
  const size_t K = p.keyDim;
  if (at.key != prepared.key) {
    prepare(scratch.key, tensors.k + at.key, p);
    prepare(scratch.query, tensors.q + at.key, p);
  }
  if (at.gate != prepared.gate) {
    if constexpr (Channels) decays_of(scratch.decays, tensors.g + at.gate * K, K, p.gateFactor);
    prepared.decay = Channels ? 1.0f : decay_of(head.gate, p.gateFactor);
  }
  prepared.key = at.key;
  prepared.gate = at.gate;
  convert_row(tensors.v + at.value, rows, scratch.values);
  const Token token{scratch.key, scratch.query, scratch.decays, prepared.decay, head.beta, p.scale};
  const auto update = [&](auto count, size_t r) __attribute__((always_inline)) {
    update_rows<count, Channels>(from + r * K, state + r * K, K, token, scratch.values + r, scratch.outputs + r,
                                 scratch.deltas + r);
  };
  size_t r = 0;
  for (; r + 4 <= rows; r += 4) update(std::integral_constant<int, 4>(), r);
  for (; r < rows; ++r) update(std::integral_constant<int, 1>(), r);
  convert_row(scratch.outputs, rows, tensors.o + at.value);
}

// The block's rows before its first token: in `state`, unless they can be read where the initial state has them.
inline const float* initial_rows(const StateLayout& layout, const float* initial, size_t state_at, size_t rows,
                                 float* state) {
  if (initial && layout.rows_are_whole()) return initial + state_at;
  if (initial)
    load_rows(layout, initial + state_at, rows, state);
  else
    memset(state, 0, rows * layout.K * sizeof(float));
  return state;
}

template <typename T, Gates kGates>
int32_t gated_delta_rule_recurrent(const Launch& l) {
  constexpr bool Channels = kGates == Gates::kChannels;
  constexpr size_t kRows = GATED_DELTA_RULE_RECURRENT_ROWS_PER_THREADGROUP;
  const auto& p = l.args<GatedDeltaRuleRecurrentParams>();
  const Indices cu_seqlens = l.indices(GATED_DELTA_RULE_RECURRENT_CU_SEQLENS);
  if (!packed_right(cu_seqlens, p.sequences, p.tokens, l, GATED_DELTA_RULE_RECURRENT_FAULT_CU_SEQLENS)) return 1;
  const Tensors<T, kGates> tensors(l);
  const size_t K = p.keyDim, V = p.valueDim, H = p.heads, gates = Channels ? K : 1;
  const StateLayout layout{K, V, p.rowStride, p.columnStride};
  const Kept kept(l, p, layout, gates);
  const bool keeps = kept.any(), in_place = tensors.final_state && layout.rows_are_whole();
  const auto scratch = scratch_of(l, p);
  // Zeros after the last element, up to a whole vector.
  for (float* vector : {scratch.key, scratch.query, Channels ? scratch.decays : scratch.query})
    memset(vector, 0, round_up(K, kLanes) * sizeof(float));
  HeadGates<T, kGates> head_gates;
  Prepared prepared;
  for (uint64_t group = l.begin; group < l.end; ++group) {
    const size_t block = group % l.threadgroups[0], head = group / l.threadgroups[0] % H;
    const size_t sequence = group / l.threadgroups[0] / H;
    const size_t v0 = block * kRows, rows = V - v0 < kRows ? V - v0 : kRows;
    const size_t key_head = key_head_of(head, p.headsPerKey, p.keyHeads);
    const size_t state_at = layout.at(sequence * H + head, v0);
    const Sequence s = sequence_at(cu_seqlens, sequence, p.tokens);
    const size_t start = p.chunkLength ? chunked_tokens(s.tokens, p.chunkLength, p.lastTokens) : 0;
    float* state = in_place ? tensors.final_state + state_at : scratch.state;  // [rows, K]
    const float* from = initial_rows(layout, tensors.initial_state, state_at, rows, state);
    Kept::Block kept_of{sequence, head, v0, rows, s.tokens, 0};
    if (keeps) {
      if (kept.snapshots)
        kept_of.first_snapshot = first_snapshot(cu_seqlens, sequence, s.tokens, p.tokens, p.snapshotEvery);
      kept.fill(kept_of);
      kept.state(kept_of, start, from);
    }
    for (size_t t = start; t < s.tokens; ++t) {
      const size_t token_at = s.begin + t, head_at = token_at * H + head;
      const Places at{(token_at * p.keyHeads + key_head) * K, head_at * V + v0, head_at};
      if (tensors.mask && !tensors.mask[token_at]) {
        memset(tensors.o + at.value, 0, rows * sizeof(T));
        if (keeps) kept.entry(kept_of, t, nullptr, nullptr, nullptr);
      } else {
        const HeadGate own = head_gates.at(p, tensors, head_at, head);
        take_token(p, tensors, scratch, prepared, at, own, rows, from, state);
        from = state;
        const float* logged = &own.gate;
        if constexpr (Channels) logged = tensors.g + head_at * gates;
        if (keeps) kept.entry(kept_of, t, scratch.key, scratch.deltas, logged);
      }
      if (keeps) {
        kept.snapshot(kept_of, t + 1, from);
        kept.state(kept_of, t + 1, from);
      }
    }
    if (tensors.final_state && from != tensors.final_state + state_at)
      store_rows(layout, from, rows, tensors.final_state + state_at);
  }
  return 0;
}

}  // namespace

#define GATED_DELTA_RULE_RECURRENT(name, T)                                                                   \
  MLXTS_KERNEL(gated_delta_rule_recurrent_##name, gated_delta_rule_recurrent<T, Gates::kOne>)                 \
  MLXTS_KERNEL(gated_delta_rule_recurrent_##name##_channels, gated_delta_rule_recurrent<T, Gates::kChannels>) \
  MLXTS_KERNEL(gated_delta_rule_recurrent_##name##_gates, gated_delta_rule_recurrent<T, Gates::kComputed>)
GATED_DELTA_RULE_RECURRENT(f32, float)
GATED_DELTA_RULE_RECURRENT(f16, f16)
GATED_DELTA_RULE_RECURRENT(bf16, bf16)
