// One simdgroup: four rows of the state of one head, in registers from the first token to the last. A row lies across
// the lanes, a few neighbouring elements in each.
#include "gated_delta_rule_recurrent.params.h"
#include "metal_kernel.h"

using namespace metal;
using namespace mlxts;

constant constexpr uint kRows = GATED_DELTA_RULE_RECURRENT_ROWS_PER_SIMDGROUP;
static_assert(kRows == 4, "the sums of the rows are a float4");

// A lane's elements of a vector.
template <typename T, uint E>
struct Share {
  T at[E];
};

// Elements first … first + E - 1 of `dim`, zeros behind the last.
template <typename T, uint E>
METAL_FUNC Share<T, E> load_share(device const T* from, uint first, uint dim) {
  Share<T, E> share;
  // Whole shares apart: the compiler can join their loads.
  if (first + E <= dim)
    for (uint i = 0; i < E; ++i) share.at[i] = from[first + i];
  else
    for (uint i = 0; i < E; ++i) share.at[i] = first + i < dim ? from[first + i] : T(0.0f);
  return share;
}

template <typename T, uint E>
METAL_FUNC Share<float, E> widen(Share<T, E> narrow) {
  Share<float, E> wide;
  for (uint i = 0; i < E; ++i) wide.at[i] = float(narrow.at[i]);
  return wide;
}

// This lane's part of the dot product.
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

// Where the rest of a head's tokens is read; `v` at this simdgroup's rows.
template <typename T>
struct Tokens {
  device const T* q;
  device const T* k;
  device const T* v;
  device const float* g;
  device const float* beta;
};

// A token as it was read: nothing waits for it until it is used.
template <typename T, uint E>
struct Token {
  Share<T, E> q, k;
  Share<T, kRows> v;
  float g, beta;
};

template <typename T, uint E>
METAL_FUNC Token<T, E> next_token(thread Tokens<T>& from, uint first, uint rows,
                                  constant GatedDeltaRuleRecurrentParams& p) {
  Token<T, E> token = {load_share<T, E>(from.q, first, p.keyDim), load_share<T, E>(from.k, first, p.keyDim),
                       load_share<T, kRows>(from.v, 0, rows), *from.g, *from.beta};
  from.q += p.keyHeads * p.keyDim;
  from.k += p.keyHeads * p.keyDim;
  from.v += p.heads * p.valueDim;
  from.g += p.heads;
  from.beta += p.heads;
  return token;
}

template <uint E>
METAL_FUNC void store_share(device float* to, uint first, uint dim, Share<float, E> share) {
  if (first + E <= dim)
    for (uint i = 0; i < E; ++i) to[first + i] = share.at[i];
  else
    for (uint i = 0; i < E; ++i)
      if (first + i < dim) to[first + i] = share.at[i];
}

// All tokens, with E elements of each row in a lane. `initial`, `last` and `o` at this simdgroup's rows.
template <uint E, typename T>
METAL_FUNC void update_rows(Tokens<T> from, device const float* initial, device T* o, device float* last, uint rows,
                            uint lane, constant GatedDeltaRuleRecurrentParams& p) {
  const uint first = lane * E;
  const bool given = p.present & GATED_DELTA_RULE_RECURRENT_HAS_INITIAL_STATE;
  Share<float, E> state[kRows];
#pragma unroll
  for (uint r = 0; r < kRows; ++r)
    state[r] = load_share<float, E>(initial + r * p.keyDim, first, given && r < rows ? p.keyDim : 0);
  Token<T, E> next = next_token<T, E>(from, first, rows, p);
  for (uint t = 0; t < p.tokens; ++t) {
    const Token<T, E> token = next;
    if (t + 1 < p.tokens) next = next_token<T, E>(from, first, rows, p);
    Share<float, E> q = widen(token.q), k = widen(token.k);
    if (p.qkNorm) {
      const float2 squares = simd_sum(float2(dot_share(q, q), dot_share(k, k)));
      multiply(q, 1.0f / precise::sqrt(squares[0] + p.eps));
      multiply(k, 1.0f / precise::sqrt(squares[1] + p.eps));
    }
    const float decay = precise::exp(token.g);
    float4 predicted, seen;
#pragma unroll
    for (uint r = 0; r < kRows; ++r) {
      multiply(state[r], decay);
      predicted[r] = dot_share(state[r], k);
    }
    predicted = simd_sum(predicted);
#pragma unroll
    for (uint r = 0; r < kRows; ++r) {
      const float error = token.beta * (float(token.v.at[r]) - predicted[r]);
      for (uint i = 0; i < E; ++i) state[r].at[i] = fma(error, k.at[i], state[r].at[i]);
      seen[r] = dot_share(state[r], q);
    }
    seen = simd_sum(seen) * p.scale;
    float own = seen[0];
#pragma unroll
    for (uint r = 1; r < kRows; ++r) own = lane == r ? seen[r] : own;
    if (lane < rows) o[lane] = T(own);
    o += p.heads * p.valueDim;
  }
  if (!(p.present & GATED_DELTA_RULE_RECURRENT_HAS_FINAL_STATE)) return;
#pragma unroll
  for (uint r = 0; r < kRows; ++r)
    if (r < rows) store_share<E>(last + r * p.keyDim, first, p.keyDim, state[r]);
}

template <typename T>
kernel void gated_delta_rule_recurrent(device const T* q [[buffer(GATED_DELTA_RULE_RECURRENT_Q)]],
                                       device const T* k [[buffer(GATED_DELTA_RULE_RECURRENT_K)]],
                                       device const T* v [[buffer(GATED_DELTA_RULE_RECURRENT_V)]],
                                       device const float* g [[buffer(GATED_DELTA_RULE_RECURRENT_G)]],
                                       device const float* beta [[buffer(GATED_DELTA_RULE_RECURRENT_BETA)]],
                                       device const float* initial [[buffer(GATED_DELTA_RULE_RECURRENT_INITIAL_STATE)]],
                                       device T* o [[buffer(GATED_DELTA_RULE_RECURRENT_O)]],
                                       device float* last [[buffer(GATED_DELTA_RULE_RECURRENT_FINAL_STATE)]],
                                       constant GatedDeltaRuleRecurrentParams& p
                                       [[buffer(GATED_DELTA_RULE_RECURRENT_PARAMS)]],
                                       uint3 group [[threadgroup_position_in_grid]],
                                       uint lane [[thread_index_in_simdgroup]],
                                       uint simdgroup [[simdgroup_index_in_threadgroup]]) {
  const uint row = group.x * p.rowsPerThreadgroup + simdgroup * kRows;
  if (row >= p.valueDim) return;
  const uint rows = min(p.valueDim - row, kRows), head = group.y, key_head = head / (p.heads / p.keyHeads);
  const ulong token = ulong(group.z) * p.tokens;
  const ulong key_at = (token * p.keyHeads + key_head) * p.keyDim, gate_at = token * p.heads + head;
  const ulong value_at = gate_at * p.valueDim + row;
  const ulong state_at = ((ulong(group.z) * p.heads + head) * p.valueDim + row) * p.keyDim;
  const Tokens<T> from = {q + key_at, k + key_at, v + value_at, g + gate_at, beta + gate_at};
  switch ((p.keyDim + kSimd - 1) / kSimd) {
    case 1:
    case 2:
      return update_rows<2>(from, initial + state_at, o + value_at, last + state_at, rows, lane, p);
    case 3:
      return update_rows<3>(from, initial + state_at, o + value_at, last + state_at, rows, lane, p);
    case 4:
      return update_rows<4>(from, initial + state_at, o + value_at, last + state_at, rows, lane, p);
    case 5:
    case 6:
      return update_rows<6>(from, initial + state_at, o + value_at, last + state_at, rows, lane, p);
    default:
      return update_rows<8>(from, initial + state_at, o + value_at, last + state_at, rows, lane, p);
  }
}

#define GATED_DELTA_RULE_RECURRENT(name, T)                                                                     \
  template [[host_name("gated_delta_rule_recurrent_" name)]] [[kernel]] decltype(gated_delta_rule_recurrent<T>) \
      gated_delta_rule_recurrent<T>;
GATED_DELTA_RULE_RECURRENT("f32", float)
GATED_DELTA_RULE_RECURRENT("f16", half)
GATED_DELTA_RULE_RECURRENT("bf16", bfloat)
