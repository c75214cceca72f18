// The whole chunk pipeline of one head in one threadgroup: nothing between the inputs and o leaves the cache. The same
// steps and roundings as the stages. Where the processor multiplies bf16, products of two bf16 matrices do.
#include "chunk.h"
#include "cpu_kernel.h"
#include "gated_delta_rule_chunk.params.h"

using namespace mlxts;

namespace {

constexpr size_t kPanel = 64;

// Whether products of two matrices of T are those of bf16 that the processor has.
template <typename T>
constexpr bool kBf16 = kHasBf16Dot && std::is_same_v<T, bf16>;

struct Scratch {
  size_t padded, panels;
  float *state, *q, *k, *turned, *weighted, *w, *A, *inverse, *scores, *panel, *fresh, *rounded, *beta, *factor, *kept,
      *decay, *gates;
  // Rounded to bf16: [BT, padded], [BT, padded] and [BT, BT].
  bf16 *q_bf16, *weighted_bf16, *scores_bf16;
  // Rows of tokens 2i and 2i + 1, or of channels for the state, as one row i.
  bf16x2 *k_bf16x2, *fresh_bf16x2, *gated_bf16x2;

  Scratch(void* memory, size_t K, size_t V, size_t BT) : padded(round_up(K, 16)), panels((V + kPanel - 1) / kPanel) {
    float* next = static_cast<float*>(memory);
    const auto take = [&next](size_t count) {
      float* at = next;
      next += count;
      return at;
    };
    state = take(panels * K * kPanel);  // [panels, K, kPanel]: the state transposed
    q = take(BT * padded);
    k = take(BT * padded);
    turned = take(K * BT);  // k transposed
    weighted = take(BT * padded);
    w = take(BT * padded);
    A = take(BT * BT);
    inverse = take(BT * BT);
    scores = take(BT * BT);
    panel = take(BT * kPanel);  // β v, then the gated values
    fresh = take(BT * kPanel);  // vNew
    rounded = take(K * kPanel);
    beta = take(BT);
    factor = take(BT);
    kept = take(BT);
    decay = take(BT);
    gates = take(Gates::scratch(BT));
    q_bf16 = reinterpret_cast<bf16*>(take(BT * padded / 2));
    weighted_bf16 = reinterpret_cast<bf16*>(take(BT * padded / 2));
    k_bf16x2 = reinterpret_cast<bf16x2*>(take(BT * padded / 2));
    scores_bf16 = reinterpret_cast<bf16*>(take(BT * BT / 2));
    fresh_bf16x2 = reinterpret_cast<bf16x2*>(take(BT * kPanel / 2));
    gated_bf16x2 = reinterpret_cast<bf16x2*>(take(BT * kPanel / 2));
  }
};

// Rows of a head, normalized if asked, rounded to T and widened; zeros up to `padded`, and for the tokens that `mask`
// skips.
template <typename T>
void load_vectors(const GatedDeltaRuleChunkParams& p, float* to, size_t padded, const T* from, size_t n,
                  const uint8_t* mask) {
  const size_t K = p.keyDim;
  for (size_t i = 0; i < n; ++i) {
    const T* row = from + i * p.keyHeads * K;
    if (mask && !mask[i]) {
      memset(to + i * padded, 0, padded * sizeof(float));
      continue;
    }
    vf32 inverse = splat(1.0f);
    if (p.qkNorm) {
      const float length = std::sqrt(sum_of_squares(row, K) + p.eps);
      inverse = splat(1.0f / (length < p.normFloor ? p.normFloor : length));
    }
    for_lanes(
        K, [&](size_t c) { store(to + i * padded + c, round_to<T>(load(row + c) * inverse)); },
        [&](size_t c, int m) { store(to + i * padded + c, round_to<T>(load_partial(row + c, m) * inverse)); });
  }
}

// Rows of whole vectors rounded to bf16, one after the other.
MLXTS_INLINE void narrow_rows(const float* from, size_t rows, size_t columns, bf16* to) {
  for (size_t i = 0; i < rows * columns; i += kLanes) store(to + i, load(from + i));
}

// The state before the chunk as products with q see it: rounded to T.
template <typename T>
const float* rounded_state(const float* state, size_t count, float* scratch) {
  if constexpr (std::is_same_v<T, float>) return state;
  for (size_t i = 0; i < count; i += kLanes) store(scratch + i, round_to<T>(load(state + i)));
  return scratch;
}

template <typename T>
int32_t gated_delta_rule_chunk(const Launch& l) {
  const auto& p = l.args<GatedDeltaRuleChunkParams>();
  const float* g = l.buffer<const float>(GATED_DELTA_RULE_CHUNK_G);
  const float* beta = l.buffer<const float>(GATED_DELTA_RULE_CHUNK_BETA);
  const float* initial = l.buffer<const float>(GATED_DELTA_RULE_CHUNK_INITIAL_STATE);
  float* final_state = l.buffer<float>(GATED_DELTA_RULE_CHUNK_FINAL_STATE);
  float* snapshots = l.buffer<float>(GATED_DELTA_RULE_CHUNK_SNAPSHOTS);
  const uint8_t* skips = l.buffer<const uint8_t>(GATED_DELTA_RULE_CHUNK_MASK);
  const Indices cu_seqlens = l.indices(GATED_DELTA_RULE_CHUNK_CU_SEQLENS);
  if (!packed_right(cu_seqlens, p.sequences, p.tokens, l, GATED_DELTA_RULE_CHUNK_FAULT_CU_SEQLENS)) return 1;
  const size_t K = p.keyDim, V = p.valueDim, H = p.heads, BT = p.chunkLength;
  const Scratch s(l.scratch, K, V, BT);
  for (uint64_t group = l.begin; group < l.end; ++group) {
    const size_t head = group % H, sequence = group / H, key_head = key_head_of(head, p.headsPerKey, p.keyHeads);
    const Chunks chunks(p, cu_seqlens, sequence);
    // body(panel, first row, rows): the state is a panel of value rows after the other.
    const auto for_panels = [&](auto body) {
      for (size_t c = 0; c < s.panels; ++c) {
        const size_t v0 = c * kPanel;
        body(s.state + c * K * kPanel, v0, V - v0 < kPanel ? V - v0 : kPanel);
      }
    };
    const auto write_states = [&](float* to) {
      for_panels([&](float* panel, size_t v0, size_t rows) { write_state(p, panel, kPanel, v0, rows, to); });
    };
    const size_t state_at = group * V * K;
    if (initial)
      for_panels([&](float* to, size_t v0, size_t rows) { read_state(p, initial + state_at, v0, rows, to, kPanel); });
    else
      memset(s.state, 0, s.panels * K * kPanel * sizeof(float));
    float* snapshot = nullptr;
    if (snapshots)
      snapshot =
          snapshots +
          (first_snapshot(cu_seqlens, sequence, chunks.all.tokens, p.tokens, p.snapshotEvery) * H + head) * V * K;
    for (size_t chunk = 0; size_t n = chunks.rows(chunk, BT); ++chunk) {
      const size_t token = chunks.begin + chunk * BT, at = token * H + head, last = n - 1;
      const size_t key_at = (token * p.keyHeads + key_head) * K;
      const uint8_t* mask = skips ? skips + token : nullptr;
      load_vectors(p, s.q, s.padded, l.buffer<const T>(GATED_DELTA_RULE_CHUNK_Q) + key_at, n, mask);
      load_vectors(p, s.k, s.padded, l.buffer<const T>(GATED_DELTA_RULE_CHUNK_K) + key_at, n, mask);
      Gates gates;
      gates.sum(s.gates, BT, g + at, H, n, p.gateFactor, mask, p.pair);
      gates.decays(s.decay, n);
      gates.decays_to(last, s.kept);
      const float carried = s.decay[last];

      if constexpr (kBf16<T>) {
        narrow_rows(s.k, n, s.padded, s.weighted_bf16);
        transpose_padded({reinterpret_cast<const float*>(s.weighted_bf16), s.padded / 2}, n, s.padded / 2, s.turned,
                         BT);
        narrow_rows(s.q, n, s.padded, s.q_bf16);
        narrow_rows_bf16x2(s.k, s.padded, n, s.padded, s.k_bf16x2, s.padded);
      } else {
        transpose_padded({s.k, s.padded}, n, K, s.turned, BT);
      }
      for (size_t i = 0; i < n; ++i) s.beta[i] = beta[at + i * H];
      if (mask) clear_skipped(mask, n, s.beta, 1, 1);
      scale_rows<T>(n, K, s.beta, s.k, s.padded, s.weighted, s.padded);
      const bf16x2* turned = reinterpret_cast<const bf16x2*>(s.turned);
      const size_t half = s.padded / 2;
      if constexpr (kBf16<T>) narrow_rows(s.weighted, n, s.padded, s.weighted_bf16);
      decayed_kkt(n, BT, gates, s.A, BT, [&](auto& tile) {
        if constexpr (kBf16<T>)
          tile.accumulate(s.weighted_bf16 + tile.row * s.padded, s.padded, 2, turned + tile.column, BT, half);
        else
          tile.accumulate(s.weighted + tile.row * s.padded, s.padded, 1, s.turned + tile.column, BT, K);
      });
      invert(n, BT, s.A, BT, s.inverse);
      decayed_scores<T>(n, BT, gates, s.scores, [&](auto& tile) {
        if constexpr (kBf16<T>)
          tile.accumulate(s.q_bf16 + tile.row * s.padded, s.padded, 2, turned + tile.column, BT, half);
        else
          tile.accumulate(s.q + tile.row * s.padded, s.padded, 1, s.turned + tile.column, BT, K);
      });
      if constexpr (kBf16<T>) narrow_rows(s.scores, n, BT, s.scores_bf16);
      for (size_t i = 0; i < n; ++i) s.factor[i] = s.decay[i] * s.beta[i];
      scale_rows<T>(n, K, s.factor, s.k, s.padded, s.weighted, s.padded);
      for_tiles(
          n, [&](size_t) { return K; },
          [&](auto tile) {
            tile.accumulate(s.inverse + tile.row * BT, BT, 1, s.weighted + tile.column, s.padded, tile.row + tile.rows);
            tile.each([&](size_t i, size_t c, vf32 v) { store(s.w + i * s.padded + c, round_to<T>(v)); });
          });

      for (size_t c = 0; c < s.panels; ++c) {
        const size_t v0 = c * kPanel, rows = V - v0 < kPanel ? V - v0 : kPanel;
        float* state = s.state + c * K * kPanel;
        const auto columns = [rows](size_t) { return rows; };
        scale_rows<T>(n, rows, s.beta, l.buffer<const T>(GATED_DELTA_RULE_CHUNK_V) + at * V + v0, H * V, s.panel,
                      kPanel);
        if (mask) clear_skipped(mask, n, s.panel, kPanel, kPanel);
        for_tiles(n, columns, [&](auto tile) {
          tile.accumulate(s.inverse + tile.row * BT, BT, 1, s.panel + tile.column, kPanel, tile.row + tile.rows);
          tile.each([&](size_t i, size_t r, vf32 u) { store(s.fresh + i * kPanel + r, round_to<T>(u)); });
        });
        for_tiles(n, columns, [&](auto tile) {
          tile.accumulate(s.w + tile.row * s.padded, s.padded, 1, state + tile.column, kPanel, K);
          tile.each([&](size_t i, size_t r, vf32 predicted) {
            const vf32 d = load(s.fresh + i * kPanel + r) - predicted;
            store(s.fresh + i * kPanel + r, round_to<T>(d));
            store(s.panel + i * kPanel + r, round_to<T>(d * splat(s.kept[i])));
          });
        });
        if constexpr (kBf16<T>) {
          narrow_rows_bf16x2(state, kPanel, K, kPanel, reinterpret_cast<bf16x2*>(s.rounded), kPanel);
          narrow_rows_bf16x2(s.fresh, kPanel, n, kPanel, s.fresh_bf16x2, kPanel);
          narrow_rows_bf16x2(s.panel, kPanel, n, kPanel, s.gated_bf16x2, kPanel);
        }
        const float* seen = kBf16<T> ? s.rounded : rounded_state<T>(state, K * kPanel, s.rounded);
        T* o = l.buffer<T>(GATED_DELTA_RULE_CHUNK_O) + at * V + v0;
        const vf32 scale = splat(p.scale);
        for_tiles(n, columns, [&](auto tile) {
          const size_t end = tile.row + tile.rows;
          if constexpr (kBf16<T>) {
            const bf16x2* state_bf16x2 = reinterpret_cast<const bf16x2*>(seen);
            tile.accumulate(s.q_bf16 + tile.row * s.padded, s.padded, 2, state_bf16x2 + tile.column, kPanel, K / 2);
            tile.scale_rows(s.decay);
            tile.accumulate(s.scores_bf16 + tile.row * BT, BT, 2, s.fresh_bf16x2 + tile.column, kPanel, (end + 1) / 2);
          } else {
            tile.accumulate(s.q + tile.row * s.padded, s.padded, 1, seen + tile.column, kPanel, K);
            tile.scale_rows(s.decay);
            tile.accumulate(s.scores + tile.row * BT, BT, 1, s.fresh + tile.column, kPanel, end);
          }
          tile.each([&](size_t i, size_t v, vf32 out) {
            T* to = o + i * H * V + v;
            if (v + kLanes <= rows)
              store(to, out * scale);
            else
              store_partial(to, out * scale, rows - v);
          });
        });
        for_tiles(K, columns, [&](auto tile) {
          if constexpr (kBf16<T>)
            tile.accumulate(&s.k_bf16x2[tile.row].first, 2, 2 * s.padded, s.gated_bf16x2 + tile.column, kPanel,
                            (n + 1) / 2);
          else
            tile.accumulate(s.k + tile.row, 1, s.padded, s.panel + tile.column, kPanel, n);
          tile.each([&](size_t row, size_t r, vf32 added) {
            float* cell = state + row * kPanel + r;
            store(cell, fma(splat(carried), load(cell), added));
          });
        });
      }
      if (mask) clear_skipped(mask, n, l.buffer<T>(GATED_DELTA_RULE_CHUNK_O) + at * V, H * V, V);
      if (snapshot && (chunk + 1) * BT % p.snapshotEvery == 0 && n == BT) {
        write_states(snapshot);
        snapshot += H * V * K;
      }
    }
    if (final_state) write_states(final_state + state_at);
  }
  return 0;
}

}  // namespace

MLXTS_KERNEL(gated_delta_rule_chunk_f32, gated_delta_rule_chunk<float>)
MLXTS_KERNEL(gated_delta_rule_chunk_f16, gated_delta_rule_chunk<f16>)
MLXTS_KERNEL(gated_delta_rule_chunk_bf16, gated_delta_rule_chunk<bf16>)
