// The whole chunk pipeline of one head in one threadgroup: nothing between the inputs and o leaves the cache. The same
// steps and roundings as the stages; in f32, where nothing is rounded between them, vNew = X · β(v − exp(G) k Sᵀ) takes
// the place of u − w Sᵀ, which has two products less. M: how matrices are multiplied, chunk_operands.h or
// chunk_tiles.h.
#include "chunk_operands.h"
#include "chunk_tiles.h"
#include "fused_chunk.h"

using namespace mlxts;

namespace {

typedef GatedDeltaRuleChunkParams Params;
typedef GatedDeltaRuleChunkScratch Scratch;

constexpr size_t kPanel = GATED_DELTA_RULE_CHUNK_PANEL_VALUES;

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

// Asks for the rows of the chunk that follows, some at each step of this one's work: they lie far apart, which
// processors do not foresee, and more at once than they can wait for would stop them.
class Ahead {
 public:
  template <typename T>
  Ahead(const Params& p, const FusedChunk<T>& chunk) {
    const size_t key = p.keyHeads * p.keyDim * sizeof(T), value = size_t(p.heads) * p.valueDim * sizeof(T);
    const size_t key_bytes = p.keyDim * sizeof(T), value_bytes = p.valueDim * sizeof(T);
    rows_[0] = {first(chunk.q, key, p), key, key_bytes};
    rows_[1] = {first(chunk.k, key, p), key, key_bytes};
    rows_[2] = {first(chunk.v, value, p), value, value_bytes};
    rows_[3] = {first(chunk.o, value, p), value, value_bytes};
    count_ = chunk.next;
  }
  MLXTS_INLINE void ask(size_t lines) {
    for (; lines > 0 && row_ < count_; --lines) {
      __builtin_prefetch(rows_[which_].first + row_ * rows_[which_].stride + byte_, 0, 2);
      byte_ += 64;
      if (byte_ < rows_[which_].bytes) continue;
      byte_ = 0;
      if (++which_ < 4) continue;
      which_ = 0;
      ++row_;
    }
  }

 private:
  template <typename T>
  static const char* first(const T* of_this_chunk, size_t stride, const Params& p) {
    return reinterpret_cast<const char*>(of_this_chunk) + p.chunkLength * stride;
  }
  struct Rows {
    const char* first;
    size_t stride, bytes;
  } rows_[4];
  size_t count_, row_ = 0, which_ = 0, byte_ = 0;
};

// M's, with some rows asked for before each part.
template <typename M, typename Columns, typename Body>
MLXTS_INLINE void for_products(Ahead& ahead, size_t rows, Columns columns, Body body) {
  M::for_products(rows, columns, [&](auto tile) {
    ahead.ask(M::kLinesAhead);
    body(tile);
  });
}

// A chunk's left operands of the products with panels: k, or w, that meets S; q; X; the scores; the columns of k as
// they decay to the chunk's end.
template <typename Keys, typename Queries, typename Inverse, typename Scores, typename Columns>
struct Lefts {
  Keys keys;
  Queries queries;
  Inverse inverse;
  Scores scores;
  Columns columns;
};

// A and the scores with one gate a head: their products have k in common, and their decays.
template <typename T, typename M, typename Keys, typename Queries>
void make_head_products(const Params& p, Scratch scratch, size_t n, Keys keys, Queries queries, Ahead& ahead) {
  const size_t BT = p.chunkLength;
  const auto columns = M::template right_columns<T, T>(scratch.keys, p.keyStride, n, p.keyDim, BT,
                                                       scratch.transposedKeys, scratch.transposedKeysBf16);
  for_products<M>(
      ahead, n, [](size_t end) { return end; },
      [&](auto tile) {
        auto other = tile;
        M::multiply_both(tile, other, keys, queries, columns, p.keyDim);
        M::each_of_both(tile, other, [&](size_t i, size_t j, vf32 of_keys, vf32 of_queries) {
          store_products<T>(scratch, BT, i, j, of_keys, of_queries);
        });
      });
}

// w = X · round(β exp(G) k)
template <typename T, bool kChannels, typename M, typename Inverse>
void make_w(const Params& p, Scratch scratch, size_t n, Inverse inverse, Ahead& ahead) {
  const size_t K = p.keyDim, stride = p.keyStride;
  if constexpr (!kChannels) {
    for (size_t i = 0; i < n; ++i) scratch.factors[i] = scratch.decays[i] * scratch.betas[i];
    scale_rows<T>(n, K, scratch.factors, scratch.keys, stride, scratch.weightedKeys, stride);
  }
  const auto weighted = M::template right<T, float>(scratch.weightedKeys, stride, n, scratch.rightBf16);
  for_products<M>(
      ahead, n, [K](size_t) { return K; },
      [&](auto tile) {
        M::multiply(tile, inverse, weighted, tile.row + tile.rows);
        tile.each([&](size_t i, size_t c, vf32 v) { store(scratch.w + i * stride + c, round_to<T>(v)); });
      });
}

// The matrices of the chunk's tokens, X = (I + A)⁻¹ and the scores, and what meets the panels.
template <typename T, bool kChannels, typename M>
auto make_lefts(const Params& p, Scratch scratch, FusedChunk<T> chunk, Ahead& ahead) {
  const size_t n = chunk.n, K = p.keyDim, BT = p.chunkLength, stride = p.keyStride;
  // Where each channel has its own gate, q with its decays is not rounded.
  typedef std::conditional_t<kChannels, float, T> Query;
  const auto left_keys = [&] {
    const float* keys = kWhole<T> && !kChannels ? scratch.keys : scratch.weightedKeys;
    return M::template left<T, T>(keys, stride, n, K, scratch.leftKeysBf16);
  };
  const auto left_queries = [&] {
    return M::template left<Query, T>(scratch.queries, stride, n, K, scratch.queriesBf16);
  };
  const auto finish = [&](auto keys, auto queries) {
    invert(n, BT, scratch.a, BT, scratch.inverse);
    const auto inverse = M::template left<float, T>(scratch.inverse, BT, n, n, scratch.inverseBf16);
    const auto scores = M::template left<T, T>(scratch.scores, BT, n, n, scratch.scoresBf16);
    const auto columns =
        M::template left_columns<T, T>(scratch.keys, stride, n, K, BT, scratch.transposedKeys, scratch.keysBf16);
    if constexpr (kWhole<T>) {
      return Lefts{keys, queries, inverse, scores, columns};
    } else {
      make_w<T, kChannels, M>(p, scratch, n, inverse, ahead);
      const auto w = M::template left<T, float>(scratch.w, stride, n, K, scratch.leftKeysBf16);
      return Lefts{w, queries, inverse, scores, columns};
    }
  };
  load_chunk(p, scratch, chunk);
  if constexpr (kChannels) {
    make_channel_products(p, scratch, chunk);
    M::transpose_columns(scratch.keys, stride, n, K, BT, scratch.transposedKeys);
    return finish(left_keys(), left_queries());
  } else {
    load_gates(p, scratch, chunk);
    if constexpr (!kWhole<T>) scale_rows<T>(n, K, scratch.betas, scratch.keys, stride, scratch.weightedKeys, stride);
    const auto keys = left_keys();
    const auto queries = left_queries();
    make_head_products<T, M>(p, scratch, n, keys, queries, ahead);
    return finish(keys, queries);
  }
}

// vNew = X · β(v − exp(G) k Sᵀ), and `gated`: what of it is left at the chunk's end.
template <typename M, typename Lefts, typename State>
void make_whole_values(const Params& p, Scratch scratch, FusedChunk<float> chunk, Panel panel, const Lefts& left,
                       State state, Ahead& ahead) {
  const size_t n = chunk.n, value_stride = size_t(p.heads) * p.valueDim;
  const auto columns = [width = panel.width](size_t) { return width; };
  for_products<M>(ahead, n, columns, [&](auto tile) {
    M::multiply(tile, left.keys, state, p.keyDim);
    tile.each([&](size_t i, size_t r, vf32 predicted) {
      const float* v = chunk.v + i * value_stride + panel.v0 + r;
      const vf32 value = panel.width - r < kLanes ? load_partial(v, int(panel.width - r)) : load(v);
      const vf32 error = value - splat(scratch.decays[i]) * predicted;
      store(scratch.weightedValues + i * kPanel + r, splat(scratch.betas[i]) * error);
    });
  });
  if (chunk.mask) clear_skipped(chunk.mask, n, scratch.weightedValues, kPanel, kPanel);
  const auto weighted = M::template right<float, float>(scratch.weightedValues, kPanel, n, scratch.rightBf16);
  for_products<M>(ahead, n, columns, [&](auto tile) {
    M::multiply(tile, left.inverse, weighted, tile.row + tile.rows);
    tile.each([&](size_t i, size_t r, vf32 d) {
      store(scratch.vNew + i * kPanel + r, d);
      store(scratch.gated + i * kPanel + r, d * splat(scratch.decaysToEnd[i]));
    });
  });
}

// u = X · round(β v), then vNew = u − w Sᵀ, and `gated`: what of it is left at the chunk's end.
template <typename T, typename M, typename Lefts, typename State>
void make_values(const Params& p, Scratch scratch, FusedChunk<T> chunk, Panel panel, const Lefts& left, State state,
                 Ahead& ahead) {
  const size_t n = chunk.n, value_stride = size_t(p.heads) * p.valueDim;
  const auto columns = [width = panel.width](size_t) { return width; };
  scale_rows<T>(n, panel.width, scratch.betas, chunk.v + panel.v0, value_stride, scratch.weightedValues, kPanel);
  if (chunk.mask) clear_skipped(chunk.mask, n, scratch.weightedValues, kPanel, kPanel);
  const auto weighted = M::template right<T, float>(scratch.weightedValues, kPanel, n, scratch.rightBf16);
  for_products<M>(ahead, n, columns, [&](auto tile) {
    M::multiply(tile, left.inverse, weighted, tile.row + tile.rows);
    tile.each([&](size_t i, size_t r, vf32 u) { store(scratch.vNew + i * kPanel + r, round_to<T>(u)); });
  });
  for_products<M>(ahead, n, columns, [&](auto tile) {
    M::multiply(tile, left.keys, state, p.keyDim);
    tile.each([&](size_t i, size_t r, vf32 predicted) {
      const vf32 d = load(scratch.vNew + i * kPanel + r) - predicted;
      store(scratch.vNew + i * kPanel + r, round_to<T>(d));
      store(scratch.gated + i * kPanel + r, round_to<T>(d * splat(scratch.decaysToEnd[i])));
    });
  });
}

// o = scale · (exp(G) q Sᵀ + scores · vNew)
template <typename T, typename M, typename Lefts, typename State>
void store_output(const Params& p, Scratch scratch, FusedChunk<T> chunk, Panel panel, const Lefts& left, State state,
                  Ahead& ahead) {
  const size_t value_stride = size_t(p.heads) * p.valueDim;
  const vf32 scale = splat(p.scale);
  const auto values = M::template right<T, T>(scratch.vNew, kPanel, chunk.n, scratch.rightBf16);
  for_products<M>(
      ahead, chunk.n, [&](size_t) { return panel.width; },
      [&](auto tile) {
        M::multiply(tile, left.queries, state, p.keyDim);
        tile.scale_rows(scratch.decays);
        M::multiply(tile, left.scores, values, tile.row + tile.rows);
        tile.each([&](size_t i, size_t v, vf32 out) {
          store_up_to(chunk.o + i * value_stride + panel.v0 + v, out * scale, panel.width - v);
        });
      });
}

// S ← exp(G_last) S + gatedᵀ k
template <typename T, typename M, typename Lefts>
void update_state(const Params& p, Scratch scratch, size_t n, Panel panel, const Lefts& left, Ahead& ahead) {
  const auto gated = M::template right<T, T>(scratch.gated, kPanel, n, scratch.rightBf16);
  for_products<M>(
      ahead, p.keyDim, [&](size_t) { return panel.width; },
      [&](auto tile) {
        M::multiply(tile, left.columns, gated, n);
        tile.each([&](size_t c, size_t r, vf32 added) {
          float* s = panel.state + c * kPanel + r;
          store(s, fma(splat(scratch.stateDecays[c]), load(s), added));
        });
      });
}

template <typename T, bool kChannels, typename M>
void advance(const Params& p, Scratch scratch, FusedChunk<T> chunk) {
  Ahead ahead(p, chunk);
  const auto left = make_lefts<T, kChannels, M>(p, scratch, chunk, ahead);
  for_panels(p, scratch, [&](Panel panel) {
    const auto state = M::template state<T>(panel.state, kPanel, p.keyDim, scratch.stateBf16);
    if constexpr (kWhole<T>)
      make_whole_values<M>(p, scratch, chunk, panel, left, state, ahead);
    else
      make_values<T, M>(p, scratch, chunk, panel, left, state, ahead);
    typedef std::conditional_t<kChannels, float, T> Query;
    const auto rounded =
        M::template rounded_state<T, Query>(panel.state, kPanel, p.keyDim, scratch.roundedState, scratch.stateBf16);
    store_output<T, M>(p, scratch, chunk, panel, left, rounded, ahead);
    update_state<T, M>(p, scratch, chunk.n, panel, left, ahead);
  });
  if (chunk.mask) clear_skipped(chunk.mask, chunk.n, chunk.o, size_t(p.heads) * p.valueDim, p.valueDim);
}

template <typename T, bool kChannels, typename M>
int32_t gated_delta_rule_chunk(const Launch& l) {
  const auto& p = l.args<Params>();
  const Indices cu_seqlens = l.indices(GATED_DELTA_RULE_CHUNK_CU_SEQLENS);
  if (!packed_right(cu_seqlens, p.sequences, p.tokens, l, GATED_DELTA_RULE_CHUNK_FAULT_CU_SEQLENS)) return 1;
  const float* initial = l.buffer<const float>(GATED_DELTA_RULE_CHUNK_INITIAL_STATE);
  float* final_state = l.buffer<float>(GATED_DELTA_RULE_CHUNK_FINAL_STATE);
  const uint8_t* mask = l.buffer<const uint8_t>(GATED_DELTA_RULE_CHUNK_MASK);
  const size_t K = p.keyDim, V = p.valueDim, H = p.heads, BT = p.chunkLength;
  const Scratch scratch = scratch_of(l, p);
  [[maybe_unused]] const typename M::Session session;
  if constexpr (kChannels) prepare_channels(p, scratch);
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
      const FusedChunk<T> chunk{n,
                                l.buffer<const T>(GATED_DELTA_RULE_CHUNK_Q) + key_at,
                                l.buffer<const T>(GATED_DELTA_RULE_CHUNK_K) + key_at,
                                l.buffer<const T>(GATED_DELTA_RULE_CHUNK_V) + at * V,
                                l.buffer<const float>(GATED_DELTA_RULE_CHUNK_G) + at * (kChannels ? K : 1),
                                l.buffer<const float>(GATED_DELTA_RULE_CHUNK_BETA) + at,
                                mask ? mask + token : nullptr,
                                l.buffer<T>(GATED_DELTA_RULE_CHUNK_O) + at * V,
                                chunk_rows(chunks.tokens, i + 1, BT)};
      advance<T, kChannels, M>(p, scratch, chunk);
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

#define GATED_DELTA_RULE_CHUNK(name, T, M)                                         \
  MLXTS_KERNEL(gated_delta_rule_chunk_##name, gated_delta_rule_chunk<T, false, M>) \
  MLXTS_KERNEL(gated_delta_rule_chunk_##name##_channels, gated_delta_rule_chunk<T, true, M>)
GATED_DELTA_RULE_CHUNK(f32, float, VectorProducts<false>)
GATED_DELTA_RULE_CHUNK(f16, f16, VectorProducts<false>)
#if defined(__AMX_BF16__)
GATED_DELTA_RULE_CHUNK(bf16_tiles, bf16, TileProducts)
#else
#define GATED_DELTA_RULE_CHUNK_BF16(name, channels)               \
  MLXTS_KERNEL_OF_LEFT(gated_delta_rule_chunk_##name, bf16, bf16, \
                       gated_delta_rule_chunk<bf16, channels, VectorProducts<kDotsBf16<L, bf16>>>(launch))
GATED_DELTA_RULE_CHUNK_BF16(bf16, false)
GATED_DELTA_RULE_CHUNK_BF16(bf16_channels, true)
#endif
