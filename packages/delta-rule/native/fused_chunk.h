// What the fused chunk kernel reads of a chunk, and the matrices of the chunk's tokens. kChannels: each channel of a
// key has its own gate. Its decays are in the rows of q and k, and those of tokens are 1.
#pragma once
#include "chunk_channels.h"
#include "gated_delta_rule_chunk.params.h"
#include "state_rows.h"

namespace mlxts {

// A chunk of one head: its n tokens.
template <typename T>
struct FusedChunk {
  size_t n;
  const T *q, *k, *v;
  const float *g, *beta;
  const uint8_t* mask;  // null: no token is skipped
  T* o;
  size_t next;  // tokens of the chunk that follows
};

// Whether vNew is one product of X, and neither u nor w is made.
template <typename T>
inline constexpr bool kWhole = std::is_same_v<T, float>;

// Rows of a head, normalized if asked, rounded to T and widened; zeros up to a whole vector, and for the tokens that
// `mask` skips.
template <typename T>
void load_vectors(const GatedDeltaRuleChunkParams& p, const T* from, size_t n, const uint8_t* mask, float* to) {
  const size_t K = p.keyDim;
  for (size_t i = 0; i < n; ++i, to += p.keyStride) {
    const T* row = from + i * p.keyHeads * K;
    if (mask && !mask[i]) {
      memset(to, 0, p.keyStride * sizeof(float));
      continue;
    }
    vf32 inverse = splat(1.0f);
    if (p.qkNorm) {
      const float length = std::sqrt(sum_of_squares(row, K) + p.eps);
      inverse = splat(1.0f / (length < p.normFloor ? p.normFloor : length));
    }
    for_lanes(
        K, [&](size_t c) { store(to + c, round_to<T>(load(row + c) * inverse)); },
        [&](size_t c, int m) { store(to + c, round_to<T>(load_partial(row + c, m) * inverse)); });
  }
}

// q, k and beta.
template <typename T>
void load_chunk(const GatedDeltaRuleChunkParams& p, GatedDeltaRuleChunkScratch scratch, FusedChunk<T> chunk) {
  const size_t n = chunk.n;
  load_vectors(p, chunk.q, n, chunk.mask, scratch.queries);
  load_vectors(p, chunk.k, n, chunk.mask, scratch.keys);
  for (size_t i = 0; i < n; ++i) scratch.betas[i] = chunk.beta[i * p.heads];
  if (chunk.mask) clear_skipped(chunk.mask, n, scratch.betas, 1, 1);
}

// G of one gate a head, and what follows from it.
template <typename T>
void load_gates(const GatedDeltaRuleChunkParams& p, GatedDeltaRuleChunkScratch scratch, FusedChunk<T> chunk) {
  const size_t n = chunk.n;
  const CumulativeGates G{scratch.cumulativeGateHigh, scratch.cumulativeGateLow};
  G.sum_up(chunk.g, p.heads, n, p.chunkLength, p.gateFactor, chunk.mask, p.carriesLow);
  G.decays(scratch.decays, n);
  G.decays_to(n - 1, scratch.decaysToEnd);
  for (size_t c = 0; c < p.keyStride; c += kLanes) store(scratch.stateDecays + c, splat(scratch.decays[n - 1]));
}

// What follows from the products of (β) k and q with k: A, β yet to come where it is whole, and the scores.
template <typename T>
MLXTS_INLINE void store_products(GatedDeltaRuleChunkScratch scratch, size_t BT, size_t i, size_t j, vf32 keys,
                                 vf32 queries) {
  const CumulativeGates G{scratch.cumulativeGateHigh, scratch.cumulativeGateLow};
  const vi32 column = lane_index() + splat_i32(j), row = splat_i32(i), seen = column <= row;
  const vf32 decay = exp(select(seen, G.difference(i, j), vf32{}));
  vf32 a = keys * decay;
  if constexpr (kWhole<T>) a *= splat(scratch.betas[i]);
  store(scratch.a + i * BT + j, select(column < row, a, vf32{}));
  store(scratch.scores + i * BT + j, select(seen, round_to<T>(queries * decay), vf32{}));
}

inline ChannelRows channel_rows(const GatedDeltaRuleChunkParams& p, GatedDeltaRuleChunkScratch scratch) {
  return {scratch.decayedKeys, scratch.steps, scratch.transposedKeys, p.keyDim, p.chunkLength, p.keyStride};
}

// Before the first chunk: what each one leaves as it is.
inline void prepare_channels(const GatedDeltaRuleChunkParams& p, GatedDeltaRuleChunkScratch scratch) {
  clear_beyond(channel_rows(p, scratch), {scratch.queries, scratch.keys, scratch.weightedKeys, scratch.decayedQueries});
  for (size_t i = 0; i < p.chunkLength; ++i) scratch.decays[i] = scratch.decaysToEnd[i] = 1.0f;
}

// exp(g) of each token and channel; 1 for the tokens that `mask` skips.
template <typename T>
void load_steps(const GatedDeltaRuleChunkParams& p, GatedDeltaRuleChunkScratch scratch, FusedChunk<T> chunk) {
  const size_t K = p.keyDim;
  for (size_t i = 0; i < chunk.n; ++i) {
    float* steps = scratch.steps + i * p.keyStride;
    if (!chunk.mask || chunk.mask[i]) {
      decays_of(steps, chunk.g + i * p.heads * K, K, p.gateFactor);
    } else {
      for (size_t c = 0; c < K; ++c) steps[c] = 1.0f;
    }
  }
}

// exp(G) of a chunk and what it weighs: q becomes exp(G) q, k becomes round(exp(G_last − G) k), and weightedKeys are
// round(β exp(G) k), or exp(G) k where β comes later.
template <typename T>
void decay_rows(const GatedDeltaRuleChunkParams& p, GatedDeltaRuleChunkScratch scratch, size_t n) {
  const size_t stride = p.keyStride;
  for (size_t c = 0; c < stride; c += kLanes) {
    vf32 decay = splat(1.0f);
    for (size_t i = 0; i < n; ++i) {
      const size_t at = i * stride + c;
      decay *= load(scratch.steps + at);
      store(scratch.queries + at, load(scratch.queries + at) * decay);
      const vf32 weight = kWhole<T> ? decay : decay * splat(scratch.betas[i]);
      store(scratch.weightedKeys + at, round_to<T>(load(scratch.keys + at) * weight));
    }
    store(scratch.stateDecays + c, decay);
    decay = splat(1.0f);
    for (size_t i = n; i-- > 0;) {
      const size_t at = i * stride + c;
      store(scratch.keys + at, round_to<T>(load(scratch.keys + at) * decay));
      decay *= load(scratch.steps + at);
    }
  }
}

// A and the scores with a gate for each channel, and the rows as they decay.
template <typename T>
void make_channel_products(const GatedDeltaRuleChunkParams& p, GatedDeltaRuleChunkScratch scratch,
                           FusedChunk<T> chunk) {
  const size_t n = chunk.n, BT = p.chunkLength, stride = p.keyStride, size = n * stride * sizeof(float);
  load_steps(p, scratch, chunk);
  scale_rows<T>(n, p.keyDim, scratch.betas, scratch.keys, stride, scratch.weightedKeys, stride);
  memcpy(scratch.decayedKeys, scratch.keys, size);
  memcpy(scratch.decayedQueries, scratch.queries, size);
  channel_products<T>(n, channel_rows(p, scratch), ChannelProduct<false>{scratch.weightedKeys, scratch.a, BT},
                      ChannelProduct<true>{scratch.decayedQueries, scratch.scores, BT});
  decay_rows<T>(p, scratch, n);
}

}  // namespace mlxts
