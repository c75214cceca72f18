// One threadgroup: a block of value rows of one head, token after token. Rows of the state are independent; each token
// reads and writes every row once.
#include "cpu_kernel.h"
#include "gated_delta_rule_recurrent.params.h"
#include "linalg.h"
#include "simd.h"

using namespace mlxts;

namespace {

struct Token {
  const float* k;  // [K], zeros up to a whole vector
  const float* q;
  float decay, beta, scale;
};

// R rows of the state: S ← decay·S + β(v − decay·S k)kᵀ, o = scale·S q. Four rows share each load of k and q.
template <int R>
MLXTS_INLINE void update_rows(const float* from, float* to, size_t K, const Token& token, const float* v, float* o) {
  vf32 dot[R][2] = {};
  size_t c = 0;
  for (; c + 2 * kLanes <= K; c += 2 * kLanes) {
    const vf32 k0 = load(token.k + c), k1 = load(token.k + c + kLanes);
    for (int r = 0; r < R; ++r) {
      dot[r][0] = fma(load(from + r * K + c), k0, dot[r][0]);
      dot[r][1] = fma(load(from + r * K + c + kLanes), k1, dot[r][1]);
    }
  }
  for (; c + kLanes <= K; c += kLanes)
    for (int r = 0; r < R; ++r) dot[r][0] = fma(load(from + r * K + c), load(token.k + c), dot[r][0]);
  if (c < K)
    for (int r = 0; r < R; ++r) dot[r][1] = fma(load_partial(from + r * K + c, K - c), load(token.k + c), dot[r][1]);
  const auto sums = [](vf32(&pairs)[R][2], float* out) {
    vf32 single[4] = {};
    for (int r = 0; r < R; ++r) single[r] = pairs[r][0] + pairs[r][1];
    const vf32x4 all = reduce_add4(single);
    for (int r = 0; r < R; ++r) out[r] = all[r];
  };
  float predicted[R], seen[R];
  sums(dot, predicted);
  vf32 error[R];
  for (int r = 0; r < R; ++r) error[r] = splat(token.beta * (v[r] - token.decay * predicted[r]));
  const vf32 decay = splat(token.decay);
  vf32 out[R][2] = {};
  c = 0;
  for (; c + 2 * kLanes <= K; c += 2 * kLanes)
    for (int half = 0; half < 2; ++half) {
      const size_t at = c + half * kLanes;
      const vf32 k = load(token.k + at), q = load(token.q + at);
      for (int r = 0; r < R; ++r) {
        const vf32 s = fma(error[r], k, decay * load(from + r * K + at));
        store(to + r * K + at, s);
        out[r][half] = fma(s, q, out[r][half]);
      }
    }
  for (; c < K; c += kLanes) {
    const int n = K - c < kLanes ? K - c : kLanes;
    const vf32 k = load(token.k + c), q = load(token.q + c);
    for (int r = 0; r < R; ++r) {
      const float* at = from + r * K + c;
      const vf32 s = fma(error[r], k, decay * (n == kLanes ? load(at) : load_partial(at, n)));
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

// Widens a head's vector and, if asked, divides it by its length: x / √(Σx² + eps).
template <typename T>
void prepare(float* to, const T* from, size_t K, bool normalise, float eps) {
  widen_row(to, from, K);
  if (!normalise) return;
  const vf32 inverse = splat(1.0f / std::sqrt(sum_of_squares(to, K) + eps));
  for (size_t c = 0; c < K; c += kLanes) store(to + c, load(to + c) * inverse);
}

template <typename T>
void gated_delta_rule_recurrent(const Launch& l) {
  const auto& p = l.args<GatedDeltaRuleRecurrentParams>();
  const T* q = l.buffer<const T>(GATED_DELTA_RULE_RECURRENT_Q);
  const T* k = l.buffer<const T>(GATED_DELTA_RULE_RECURRENT_K);
  const T* v = l.buffer<const T>(GATED_DELTA_RULE_RECURRENT_V);
  const float* g = l.buffer<const float>(GATED_DELTA_RULE_RECURRENT_G);
  const float* beta = l.buffer<const float>(GATED_DELTA_RULE_RECURRENT_BETA);
  const float* initial = l.buffer<const float>(GATED_DELTA_RULE_RECURRENT_INITIAL_STATE);
  T* o = l.buffer<T>(GATED_DELTA_RULE_RECURRENT_O);
  float* final_state = l.buffer<float>(GATED_DELTA_RULE_RECURRENT_FINAL_STATE);
  const size_t K = p.keyDim, V = p.valueDim, H = p.heads, key_heads = p.keyHeads, tokens = p.tokens;
  const size_t padded = round_up(K, 16), block_rows = p.rowsPerThreadgroup;
  float* key = static_cast<float*>(l.scratch);  // [padded]
  float* query = key + padded;                  // [padded]
  float* value = query + padded;                // [block_rows]
  float* out = value + block_rows;              // [block_rows]
  float* kept = out + block_rows;               // [block_rows, K]
  memset(key, 0, 2 * padded * sizeof(float));
  for (uint64_t group = l.begin; group < l.end; ++group) {
    const size_t block = group % l.threadgroups[0], head = group / l.threadgroups[0] % H;
    const size_t sequence = group / l.threadgroups[0] / H;
    const size_t v0 = block * block_rows, rows = V - v0 < block_rows ? V - v0 : block_rows;
    const size_t state_at = ((sequence * H + head) * V + v0) * K;
    float* state = final_state ? final_state + state_at : kept;  // [rows, K]
    const float* from = initial ? initial + state_at : state;
    if (!initial) memset(state, 0, rows * K * sizeof(float));
    for (size_t t = 0; t < tokens; ++t) {
      const size_t token_at = sequence * tokens + t;
      const size_t key_at = (token_at * key_heads + head / (H / key_heads)) * K;
      const size_t value_at = (token_at * H + head) * V + v0;
      prepare(key, k + key_at, K, p.qkNorm, p.eps);
      prepare(query, q + key_at, K, p.qkNorm, p.eps);
      widen_row(value, v + value_at, rows);
      const Token token{key, query, exp(splat(g[token_at * H + head]))[0], beta[token_at * H + head], p.scale};
      size_t r = 0;
      for (; r + 4 <= rows; r += 4) update_rows<4>(from + r * K, state + r * K, K, token, value + r, out + r);
      for (; r < rows; ++r) update_rows<1>(from + r * K, state + r * K, K, token, value + r, out + r);
      narrow_row(o + value_at, out, rows);
      from = state;
    }
  }
}

}  // namespace

MLXTS_KERNEL(gated_delta_rule_recurrent_f32, gated_delta_rule_recurrent<float>)
MLXTS_KERNEL(gated_delta_rule_recurrent_f16, gated_delta_rule_recurrent<f16>)
MLXTS_KERNEL(gated_delta_rule_recurrent_bf16, gated_delta_rule_recurrent<bf16>)
