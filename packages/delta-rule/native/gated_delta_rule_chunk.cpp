// The whole chunk pipeline of one head in one threadgroup: nothing between the inputs and o leaves the cache. The same
// steps and roundings as the stages; in f32, where nothing is rounded between them, vNew = X · β(v − exp(G) k Sᵀ) takes
// the place of u − w Sᵀ, which has two products less. Where the processor multiplies bf16, products of two bf16
// matrices do. kChannels: each channel of a key has its own gate. Its decays are in the rows of q and k, and those of
// tokens are 1.
#include "chunk_channels.h"
#include "gated_delta_rule_chunk.params.h"
#include "state_rows.h"

using namespace mlxts;

namespace {

typedef GatedDeltaRuleChunkParams Params;
typedef GatedDeltaRuleChunkScratch Scratch;

constexpr size_t kPanel = GATED_DELTA_RULE_CHUNK_PANEL_VALUES;

// Whether products of two matrices of T are those of bf16 that the processor has.
template <typename T, bool kChannels>
constexpr bool kBf16 = kFastBf16Dot && std::is_same_v<T, bf16> && !kChannels;

MLXTS_INLINE bf16x2* as_bf16x2(bf16* array) { return reinterpret_cast<bf16x2*>(array); }

// A chunk of one head: its n tokens.
template <typename T>
struct Chunk {
  size_t n;
  const T *q, *k, *v;
  const float *g, *beta;
  const uint8_t* mask;  // null: no token is skipped
  T* o;
  size_t next;  // tokens of the chunk that follows
};

// A panel of the state's value rows, and of the columns of v and o.
struct Panel {
  float* state;  // [K, kPanel]
  size_t v0, width;
};

// body(panel) for the panels of a head.
template <typename Body>
void for_panels(const Params& p, Scratch scratch, Body body) {
  float* state = scratch.state;
  for (size_t v0 = 0; v0 < p.valueDim; v0 += kPanel, state += p.keyDim * kPanel)
    body(Panel{state, v0, p.valueDim - v0 < kPanel ? p.valueDim - v0 : kPanel});
}

void store_states(const Params& p, Scratch scratch, float* to) {
  for_panels(p, scratch, [&](const Panel& at) { write_state(p, at.state, kPanel, at.v0, at.width, to); });
}

// Rows of a head, normalized if asked, rounded to T and widened; zeros up to a whole vector, and for the tokens that
// `mask` skips.
template <typename T>
void load_vectors(const Params& p, const T* from, size_t n, const uint8_t* mask, float* to) {
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

// Whether vNew is one product of X, and neither u nor w is made.
template <typename T>
constexpr bool kWhole = std::is_same_v<T, float>;

// Rows of whole vectors, of numbers that are bf16 already, one after the other.
MLXTS_INLINE void pack_rows(const float* from, size_t rows, size_t columns, bf16* to) {
  for (size_t i = 0; i < rows * columns; i += kLanes) {
    const vu16 bits = narrow_u32(reinterpret_cast<vu32>(load(from + i)) >> 16);
    memcpy(to + i, &bits, sizeof bits);
  }
}
// The same, rows 2i and 2i + 1 as row i; a missing last row counts as zeros.
MLXTS_INLINE void pack_rows_bf16x2(const float* from, size_t stride, size_t rows, bf16x2* to) {
  for (size_t r = 0; r < rows; r += 2)
    for (size_t c = 0; c < stride; c += kLanes) {
      const float* at = from + r * stride + c;
      const vu32 first = reinterpret_cast<vu32>(load(at)) >> 16;
      const vu32 second = r + 1 < rows ? reinterpret_cast<vu32>(load(at + stride)) : vu32{};
      store_bf16x2(to + r / 2 * stride + c, first | second);
    }
}

// q, k and beta.
template <typename T>
void load_chunk(const Params& p, Scratch scratch, Chunk<T> chunk) {
  const size_t n = chunk.n;
  load_vectors(p, chunk.q, n, chunk.mask, scratch.queries);
  load_vectors(p, chunk.k, n, chunk.mask, scratch.keys);
  for (size_t i = 0; i < n; ++i) scratch.betas[i] = chunk.beta[i * p.heads];
  if (chunk.mask) clear_skipped(chunk.mask, n, scratch.betas, 1, 1);
}

// G and what follows from it, k transposed, β k.
template <typename T>
void prepare_products(const Params& p, Scratch scratch, Chunk<T> chunk) {
  const size_t n = chunk.n, K = p.keyDim, BT = p.chunkLength, stride = p.keyStride;
  const CumulativeGates G{scratch.cumulativeGateHigh, scratch.cumulativeGateLow};
  G.sum_up(chunk.g, p.heads, n, BT, p.gateFactor, chunk.mask, p.carriesLow);
  G.decays(scratch.decays, n);
  G.decays_to(n - 1, scratch.decaysToEnd);
  for (size_t c = 0; c < stride; c += kLanes) store(scratch.stateDecays + c, splat(scratch.decays[n - 1]));
  if constexpr (kBf16<T, false>) {
    pack_rows(scratch.queries, n, stride, scratch.queriesBf16);
    pack_rows_bf16x2(scratch.keys, stride, n, as_bf16x2(scratch.keysBf16));
    // Two neighbors of a row are transposed as one element; β k takes the place of k.
    pack_rows(scratch.keys, n, stride, scratch.weightedKeysBf16);
    transpose_padded({reinterpret_cast<const float*>(scratch.weightedKeysBf16), stride / 2}, n, stride / 2,
                     reinterpret_cast<float*>(scratch.transposedKeysBf16), BT);
  } else {
    transpose_padded({scratch.keys, stride}, n, K, scratch.transposedKeys, BT);
  }
  if constexpr (!kWhole<T>) scale_rows<T>(n, K, scratch.betas, scratch.keys, stride, scratch.weightedKeys, stride);
  if constexpr (kBf16<T, false>) pack_rows(scratch.weightedKeys, n, stride, scratch.weightedKeysBf16);
}

// What follows from the products of k and q with k: A without β, then with it, and the scores.
MLXTS_INLINE void store_products(const CumulativeGates& G, Scratch scratch, size_t BT, size_t i, size_t j, vf32 keys,
                                 vf32 queries) {
  const vi32 column = lane_index() + splat_i32(j), row = splat_i32(i), seen = column <= row;
  const vf32 decay = exp(select(seen, G.difference(i, j), vf32{}));
  store(scratch.a + i * BT + j, select(column < row, keys * decay * splat(scratch.betas[i]), vf32{}));
  store(scratch.scores + i * BT + j, select(seen, queries * decay, vf32{}));
}

// A and the scores in f32: their products have k in common, and their decays.
void make_products(const Params& p, Scratch scratch, size_t n) {
  const size_t BT = p.chunkLength, stride = p.keyStride;
  const CumulativeGates G{scratch.cumulativeGateHigh, scratch.cumulativeGateLow};
  for_tiles(
      n, [](size_t end) { return end; },
      [&](auto keys) {
        auto queries = keys;
        const float *columns = scratch.transposedKeys + keys.column, *k = scratch.keys + keys.row * stride,
                    *q = scratch.queries + keys.row * stride;
        if constexpr (keys.vectors <= 2) {
          for (size_t c = 0; c < p.keyDim; ++c) {
            vf32 column[keys.vectors];
            MLXTS_UNROLL
            for (int v = 0; v < keys.vectors; ++v) column[v] = load(columns + c * BT + v * kLanes);
            keys.add(k + c, stride, column);
            queries.add(q + c, stride, column);
          }
        } else {
          keys.accumulate(k, stride, 1, columns, BT, p.keyDim);
          queries.accumulate(q, stride, 1, columns, BT, p.keyDim);
        }
        MLXTS_UNROLL
        for (int r = 0; r < keys.rows; ++r) {
          MLXTS_UNROLL
          for (int v = 0; v < keys.vectors; ++v)
            store_products(G, scratch, BT, keys.row + r, keys.column + v * kLanes, keys.sum[r][v], queries.sum[r][v]);
        }
      });
}

// A and the scores with one gate a head.
template <typename T>
void make_head_matrices(const Params& p, Scratch scratch, Chunk<T> chunk) {
  const size_t n = chunk.n, K = p.keyDim, BT = p.chunkLength, stride = p.keyStride;
  const CumulativeGates G{scratch.cumulativeGateHigh, scratch.cumulativeGateLow};
  if constexpr (kWhole<T>) return make_products(p, scratch, n);
  // Sums up the products of rows with those of k.
  const auto multiply = [&](auto& tile, const float* rows, const bf16* rows_bf16) {
    if constexpr (kBf16<T, false>)
      tile.accumulate(rows_bf16 + tile.row * stride, stride, 2, as_bf16x2(scratch.transposedKeysBf16) + tile.column, BT,
                      stride / 2);
    else
      tile.accumulate(rows + tile.row * stride, stride, 1, scratch.transposedKeys + tile.column, BT, K);
  };
  decayed_kkt(n, BT, G, scratch.a, BT,
              [&](auto& tile) { multiply(tile, scratch.weightedKeys, scratch.weightedKeysBf16); });
  decayed_scores<T>(n, BT, G, scratch.scores,
                    [&](auto& tile) { multiply(tile, scratch.queries, scratch.queriesBf16); });
  if constexpr (kBf16<T, false>) pack_rows(scratch.scores, n, BT, scratch.scoresBf16);
}

ChannelRows channel_rows(const Params& p, Scratch scratch) {
  return {scratch.decayedKeys, scratch.steps, scratch.transposedKeys, p.keyDim, p.chunkLength, p.keyStride};
}

// exp(g) of each token and channel; 1 for the tokens that `mask` skips.
template <typename T>
void load_steps(const Params& p, Scratch scratch, Chunk<T> chunk) {
  const size_t K = p.keyDim;
  for (size_t i = 0; i < chunk.n; ++i) {
    float* steps = scratch.steps + i * p.keyStride;
    if (chunk.mask && !chunk.mask[i])
      std::fill(steps, steps + K, 1.0f);
    else
      decays_of(steps, chunk.g + i * p.heads * K, K, p.gateFactor);
  }
}

// exp(G) of a chunk and what it weighs: q becomes exp(G) q, k becomes round(exp(G_last − G) k), and weightedKeys are
// round(β exp(G) k), or exp(G) k where β comes later.
template <typename T>
void decay_rows(const Params& p, Scratch scratch, size_t n) {
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
void make_channel_matrices(const Params& p, Scratch scratch, Chunk<T> chunk) {
  const size_t n = chunk.n, BT = p.chunkLength, stride = p.keyStride, size = n * stride * sizeof(float);
  load_steps(p, scratch, chunk);
  scale_rows<T>(n, p.keyDim, scratch.betas, scratch.keys, stride, scratch.weightedKeys, stride);
  memcpy(scratch.decayedKeys, scratch.keys, size);
  memcpy(scratch.decayedQueries, scratch.queries, size);
  channel_products<T>(n, channel_rows(p, scratch), ChannelProduct<false>{scratch.weightedKeys, scratch.a, BT},
                      ChannelProduct<true>{scratch.decayedQueries, scratch.scores, BT});
  decay_rows<T>(p, scratch, n);
}

// The matrices of the chunk's tokens, X = (I + A)⁻¹ and the scores.
template <typename T, bool kChannels>
void make_matrices(const Params& p, Scratch scratch, Chunk<T> chunk) {
  if constexpr (kChannels) {
    make_channel_matrices(p, scratch, chunk);
  } else {
    prepare_products(p, scratch, chunk);
    make_head_matrices(p, scratch, chunk);
  }
  invert(chunk.n, p.chunkLength, scratch.a, p.chunkLength, scratch.inverse);
}

// w = X · round(β exp(G) k)
template <typename T, bool kChannels>
void make_w(const Params& p, Scratch scratch, size_t n) {
  const size_t K = p.keyDim, BT = p.chunkLength, stride = p.keyStride;
  if constexpr (!kChannels) {
    for (size_t i = 0; i < n; ++i) scratch.factors[i] = scratch.decays[i] * scratch.betas[i];
    scale_rows<T>(n, K, scratch.factors, scratch.keys, stride, scratch.weightedKeys, stride);
  }
  for_tiles(
      n, [K](size_t) { return K; },
      [&](auto tile) {
        tile.accumulate(scratch.inverse + tile.row * BT, BT, 1, scratch.weightedKeys + tile.column, stride,
                        tile.row + tile.rows);
        tile.each([&](size_t i, size_t c, vf32 v) { store(scratch.w + i * stride + c, round_to<T>(v)); });
      });
}

// vNew = X · β(v − exp(G) k Sᵀ), and `gated`: what of it is left at the chunk's end.
template <bool kChannels>
void make_whole_values(const Params& p, Scratch scratch, Chunk<float> chunk, Panel panel) {
  const float* keys = kChannels ? scratch.weightedKeys : scratch.keys;
  const size_t n = chunk.n, BT = p.chunkLength, stride = p.keyStride, value_stride = size_t(p.heads) * p.valueDim;
  const auto columns = [width = panel.width](size_t) { return width; };
  for_tiles(n, columns, [&](auto tile) {
    tile.accumulate(keys + tile.row * stride, stride, 1, panel.state + tile.column, kPanel, p.keyDim);
    tile.each([&](size_t i, size_t r, vf32 predicted) {
      const float* v = chunk.v + i * value_stride + panel.v0 + r;
      const vf32 value = panel.width - r < kLanes ? load_partial(v, int(panel.width - r)) : load(v);
      const vf32 error = value - splat(scratch.decays[i]) * predicted;
      store(scratch.weightedValues + i * kPanel + r, splat(scratch.betas[i]) * error);
    });
  });
  if (chunk.mask) clear_skipped(chunk.mask, n, scratch.weightedValues, kPanel, kPanel);
  for_tiles(n, columns, [&](auto tile) {
    tile.accumulate(scratch.inverse + tile.row * BT, BT, 1, scratch.weightedValues + tile.column, kPanel,
                    tile.row + tile.rows);
    tile.each([&](size_t i, size_t r, vf32 d) {
      store(scratch.vNew + i * kPanel + r, d);
      store(scratch.gated + i * kPanel + r, d * splat(scratch.decaysToEnd[i]));
    });
  });
}

// u = X · round(β v), then vNew = u − w Sᵀ, and `gated`: what of it is left at the chunk's end.
template <typename T>
void make_values(const Params& p, Scratch scratch, Chunk<T> chunk, Panel panel) {
  const size_t n = chunk.n, BT = p.chunkLength, stride = p.keyStride, value_stride = size_t(p.heads) * p.valueDim;
  const auto columns = [width = panel.width](size_t) { return width; };
  scale_rows<T>(n, panel.width, scratch.betas, chunk.v + panel.v0, value_stride, scratch.weightedValues, kPanel);
  if (chunk.mask) clear_skipped(chunk.mask, n, scratch.weightedValues, kPanel, kPanel);
  for_tiles(n, columns, [&](auto tile) {
    tile.accumulate(scratch.inverse + tile.row * BT, BT, 1, scratch.weightedValues + tile.column, kPanel,
                    tile.row + tile.rows);
    tile.each([&](size_t i, size_t r, vf32 u) { store(scratch.vNew + i * kPanel + r, round_to<T>(u)); });
  });
  for_tiles(n, columns, [&](auto tile) {
    tile.accumulate(scratch.w + tile.row * stride, stride, 1, panel.state + tile.column, kPanel, p.keyDim);
    tile.each([&](size_t i, size_t r, vf32 predicted) {
      const vf32 d = load(scratch.vNew + i * kPanel + r) - predicted;
      store(scratch.vNew + i * kPanel + r, round_to<T>(d));
      store(scratch.gated + i * kPanel + r, round_to<T>(d * splat(scratch.decaysToEnd[i])));
    });
  });
}

// The operands of the last two products as they meet the others: rounded to T, of bf16 two in one element.
template <typename T, bool kChannels>
const float* round_operands(const Params& p, Scratch scratch, size_t n, Panel panel) {
  if constexpr (std::is_same_v<T, float>) return panel.state;
  if constexpr (kBf16<T, kChannels>) {
    narrow_rows_bf16x2(panel.state, kPanel, p.keyDim, kPanel, as_bf16x2(scratch.stateBf16), kPanel);
    pack_rows_bf16x2(scratch.vNew, kPanel, n, as_bf16x2(scratch.vNewBf16));
    pack_rows_bf16x2(scratch.gated, kPanel, n, as_bf16x2(scratch.gatedBf16));
  } else {
    for (size_t i = 0; i < p.keyDim * kPanel; i += kLanes)
      store(scratch.roundedState + i, round_to<T>(load(panel.state + i)));
  }
  return scratch.roundedState;
}

// o = scale · (exp(G) q Sᵀ + scores · vNew)
template <typename T, bool kChannels>
void store_output(const Params& p, Scratch scratch, Chunk<T> chunk, Panel panel, const float* state) {
  const size_t BT = p.chunkLength, stride = p.keyStride, value_stride = size_t(p.heads) * p.valueDim;
  const vf32 scale = splat(p.scale);
  for_tiles(
      chunk.n, [&](size_t) { return panel.width; },
      [&](auto tile) {
        const size_t end = tile.row + tile.rows;
        if constexpr (kBf16<T, kChannels>) {
          tile.accumulate(scratch.queriesBf16 + tile.row * stride, stride, 2,
                          as_bf16x2(scratch.stateBf16) + tile.column, kPanel, p.keyDim / 2);
          tile.scale_rows(scratch.decays);
          tile.accumulate(scratch.scoresBf16 + tile.row * BT, BT, 2, as_bf16x2(scratch.vNewBf16) + tile.column, kPanel,
                          (end + 1) / 2);
        } else {
          tile.accumulate(scratch.queries + tile.row * stride, stride, 1, state + tile.column, kPanel, p.keyDim);
          tile.scale_rows(scratch.decays);
          tile.accumulate(scratch.scores + tile.row * BT, BT, 1, scratch.vNew + tile.column, kPanel, end);
        }
        tile.each([&](size_t i, size_t v, vf32 out) {
          store_up_to(chunk.o + i * value_stride + panel.v0 + v, out * scale, panel.width - v);
        });
      });
}

// S ← exp(G_last) S + gatedᵀ k
template <typename T, bool kChannels>
void update_state(const Params& p, Scratch scratch, size_t n, Panel panel) {
  for_tiles(
      p.keyDim, [&](size_t) { return panel.width; },
      [&](auto tile) {
        if constexpr (kBf16<T, kChannels>)
          tile.accumulate(scratch.keysBf16 + 2 * tile.row, 2, 2 * p.keyStride,
                          as_bf16x2(scratch.gatedBf16) + tile.column, kPanel, (n + 1) / 2);
        else
          tile.accumulate(scratch.keys + tile.row, 1, p.keyStride, scratch.gated + tile.column, kPanel, n);
        tile.each([&](size_t c, size_t r, vf32 added) {
          float* s = panel.state + c * kPanel + r;
          store(s, fma(splat(scratch.stateDecays[c]), load(s), added));
        });
      });
}

// Asks for rows of the chunk that follows this one's: they lie far apart, which processors do not foresee.
template <typename T>
MLXTS_INLINE void prefetch_next(const Params& p, Chunk<T> chunk, const T* rows, size_t heads, size_t width) {
  const size_t stride = heads * width;
  prefetch_rows(rows + p.chunkLength * stride, stride * sizeof(T), chunk.next, width * sizeof(T));
}

template <typename T, bool kChannels>
void advance(const Params& p, Scratch scratch, Chunk<T> chunk) {
  load_chunk(p, scratch, chunk);
  prefetch_next(p, chunk, chunk.q, p.keyHeads, p.keyDim);
  prefetch_next(p, chunk, chunk.k, p.keyHeads, p.keyDim);
  make_matrices<T, kChannels>(p, scratch, chunk);
  prefetch_next(p, chunk, chunk.v, p.heads, p.valueDim);
  if constexpr (!kWhole<T>) make_w<T, kChannels>(p, scratch, chunk.n);
  for_panels(p, scratch, [&](Panel panel) {
    if constexpr (kWhole<T>)
      make_whole_values<kChannels>(p, scratch, chunk, panel);
    else
      make_values(p, scratch, chunk, panel);
    store_output<T, kChannels>(p, scratch, chunk, panel, round_operands<T, kChannels>(p, scratch, chunk.n, panel));
    if (panel.v0 == 0) prefetch_next<T>(p, chunk, chunk.o, p.heads, p.valueDim);
    update_state<T, kChannels>(p, scratch, chunk.n, panel);
  });
  if (chunk.mask) clear_skipped(chunk.mask, chunk.n, chunk.o, size_t(p.heads) * p.valueDim, p.valueDim);
}

template <typename T, bool kChannels>
int32_t gated_delta_rule_chunk(const Launch& l) {
  const auto& p = l.args<Params>();
  const Indices cu_seqlens = l.indices(GATED_DELTA_RULE_CHUNK_CU_SEQLENS);
  if (!packed_right(cu_seqlens, p.sequences, p.tokens, l, GATED_DELTA_RULE_CHUNK_FAULT_CU_SEQLENS)) return 1;
  const float* initial = l.buffer<const float>(GATED_DELTA_RULE_CHUNK_INITIAL_STATE);
  float* final_state = l.buffer<float>(GATED_DELTA_RULE_CHUNK_FINAL_STATE);
  const uint8_t* mask = l.buffer<const uint8_t>(GATED_DELTA_RULE_CHUNK_MASK);
  const size_t K = p.keyDim, V = p.valueDim, H = p.heads, BT = p.chunkLength;
  const Scratch scratch = scratch_of(l, p);
  if constexpr (kChannels) {
    clear_beyond(channel_rows(p, scratch),
                 {scratch.queries, scratch.keys, scratch.weightedKeys, scratch.decayedQueries});
    std::fill(scratch.decays, scratch.decays + BT, 1.0f);
    std::fill(scratch.decaysToEnd, scratch.decaysToEnd + BT, 1.0f);
  }
  for (uint64_t group = l.begin; group < l.end; ++group) {
    const size_t head = group % H, index = group / H, key_head = key_head_of(head, p.headsPerKey, p.keyHeads);
    const Sequence sequence = sequence_at(cu_seqlens, index, p.tokens);
    const Chunks chunks = chunks_in(p, bool(cu_seqlens), index, sequence);
    for_panels(p, scratch, [&](const Panel& at) {
      if (initial)
        read_state(p, initial + group * V * K, at.v0, at.width, at.state, kPanel);
      else
        memset(at.state, 0, K * kPanel * sizeof(float));
    });
    float* snapshot = l.buffer<float>(GATED_DELTA_RULE_CHUNK_SNAPSHOTS);
    if (snapshot)
      snapshot += (first_snapshot(cu_seqlens, index, sequence.tokens, p.tokens, p.snapshotEvery) * H + head) * V * K;
    for (size_t i = 0; size_t n = chunk_rows(chunks.tokens, i, BT); ++i) {
      const size_t token = sequence.begin + i * BT, at = token * H + head, key_at = (token * p.keyHeads + key_head) * K;
      const Chunk<T> chunk{n,
                           l.buffer<const T>(GATED_DELTA_RULE_CHUNK_Q) + key_at,
                           l.buffer<const T>(GATED_DELTA_RULE_CHUNK_K) + key_at,
                           l.buffer<const T>(GATED_DELTA_RULE_CHUNK_V) + at * V,
                           l.buffer<const float>(GATED_DELTA_RULE_CHUNK_G) + at * (kChannels ? K : 1),
                           l.buffer<const float>(GATED_DELTA_RULE_CHUNK_BETA) + at,
                           mask ? mask + token : nullptr,
                           l.buffer<T>(GATED_DELTA_RULE_CHUNK_O) + at * V,
                           chunk_rows(chunks.tokens, i + 1, BT)};
      advance<T, kChannels>(p, scratch, chunk);
      if (snapshot && n == BT && (i + 1) * BT % p.snapshotEvery == 0) {
        store_states(p, scratch, snapshot);
        snapshot += H * V * K;
      }
    }
    if (final_state) store_states(p, scratch, final_state + group * V * K);
  }
  return 0;
}

}  // namespace

#define GATED_DELTA_RULE_CHUNK(name, T)                                         \
  MLXTS_KERNEL(gated_delta_rule_chunk_##name, gated_delta_rule_chunk<T, false>) \
  MLXTS_KERNEL(gated_delta_rule_chunk_##name##_channels, gated_delta_rule_chunk<T, true>)
GATED_DELTA_RULE_CHUNK(f32, float)
GATED_DELTA_RULE_CHUNK(f16, f16)
GATED_DELTA_RULE_CHUNK(bf16, bf16)
