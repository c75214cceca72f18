// One threadgroup: a block of channels over a block of tokens of one sequence. The first block of tokens, which even an
// empty sequence has, also writes the final state, after it has read the initial one.
#include "causal_conv1d.params.h"
#include "cpu_kernel.h"
#include "matrix_transpose.h"
#include "sequences.h"

using namespace mlxts;

namespace {

template <typename T>
MLXTS_INLINE vf32 load_lanes(const T* p, int n) {
  return n == kLanes ? load(p) : load_partial(p, n);
}
template <typename T>
MLXTS_INLINE void store_lanes(T* p, vf32 v, int n) {
  if (n == kLanes)
    store(p, v);
  else
    store_partial(p, v, n);
}

template <typename T, typename S>
struct Rows {
  const T* x;           // [tokens, C] of this sequence
  const S* state;       // [rows, C] or null
  const uint8_t* mask;  // [tokens] or null
  int64_t channels, rows;

  // Token t of (state, then x); t ≥ -rows.
  MLXTS_INLINE vf32 at(int64_t t, int64_t c, int n) const {
    if (t >= 0) return mask && !mask[t] ? vf32{} : load_lanes(x + t * channels + c, n);
    return state ? load_lanes(state + (t + rows) * channels + c, n) : vf32{};
  }
  // The same of a token that no mask skips.
  MLXTS_INLINE vf32 kept_at(int64_t t, int64_t c) const {
    if (t >= 0) return load(x + t * channels + c);
    return state ? load(state + (t + rows) * channels + c) : vf32{};
  }
  bool all_kept(int64_t first, int64_t end) const {
    if (mask)
      for (int64_t t = first < 0 ? 0 : first; t < end; ++t)
        if (!mask[t]) return false;
    return true;
  }
};

template <typename T>
MLXTS_INLINE void finish(T* y, vf32 sum, bool silu_on, int n) {
  store_lanes(y, silu_on ? silu(sum) : sum, n);
}

// Four tokens of one vector of channels share their inputs; `inputs` are tokens t-3 … t+3.
template <typename T>
MLXTS_INLINE void four_tokens(T* y, int64_t channels, const vf32* inputs, const vf32* w, vf32 bias, bool silu_on) {
  vf32 sums[4];
  for (int j = 0; j < 4; ++j) {
    sums[j] = bias;
    for (int i = 0; i < 4; ++i) sums[j] = fma(w[i], inputs[j + i], sums[j]);
  }
  if (silu_on)
    for (vf32& sum : sums) sum = silu(sum);
  for (int j = 0; j < 4; ++j) store(y + j * channels, sums[j]);
}

template <typename T, typename W, typename S>
int32_t causal_conv1d(const Launch& l) {
  const auto& p = l.args<CausalConv1dParams>();
  const Indices cu_seqlens = l.indices(CAUSAL_CONV1D_CU_SEQLENS);
  if (!packed_right(cu_seqlens, p.sequences, p.tokens, l, CAUSAL_CONV1D_FAULT_CU_SEQLENS)) return 1;
  const W* weight = l.buffer<const W>(CAUSAL_CONV1D_WEIGHT);
  const W* bias = l.buffer<const W>(CAUSAL_CONV1D_BIAS);
  const S* state = l.buffer<const S>(CAUSAL_CONV1D_INITIAL_STATE);
  const uint8_t* mask = l.buffer<const uint8_t>(CAUSAL_CONV1D_MASK);
  S* final_state = l.buffer<S>(CAUSAL_CONV1D_FINAL_STATE);
  const int64_t channels = p.channels, history = int64_t(p.kernelSize) - 1, state_rows = p.stateRows;
  const uint32_t X = l.threadgroups[0], Y = l.threadgroups[1];
  float* by_token = static_cast<float*>(l.scratch);  // [kernelSize, channelsPerThreadgroup]
  const size_t block_weights = size_t(p.kernelSize) * p.channelsPerThreadgroup;
  float* by_channel = by_token + block_weights;  // [channelsPerThreadgroup, kernelSize]
  float* offset = by_channel + block_weights;
  int64_t prepared = -1;
  for (uint64_t group = l.begin; group < l.end; ++group) {
    const int64_t block = group % X;
    const Slot slot = slot_at(cu_seqlens, group / X, p.sequences, p.tokens, Y, p.tokensPerThreadgroup);
    const Sequence sequence = sequence_at(cu_seqlens, slot.sequence, p.tokens);
    const int64_t tokens = int64_t(sequence.tokens), begin = int64_t(slot.chunk * p.tokensPerThreadgroup);
    if (begin > 0 && begin >= tokens) continue;
    const int64_t c0 = block * p.channelsPerThreadgroup;
    const int64_t width = channels - c0 < p.channelsPerThreadgroup ? channels - c0 : p.channelsPerThreadgroup;
    if (block != prepared) {
      if (bias)
        convert_row(bias + c0, width, offset);
      else
        memset(offset, 0, width * sizeof(float));
      convert_row(weight + c0 * p.kernelSize, width * p.kernelSize, by_channel);
      transpose(by_channel, p.kernelSize, width, p.kernelSize, by_token, p.channelsPerThreadgroup);
      prepared = block;
    }
    const size_t at = sequence.begin * channels, state_at = slot.sequence * state_rows * channels;
    const Rows<T, S> rows{l.buffer<const T>(CAUSAL_CONV1D_X) + at, state ? state + state_at : nullptr,
                          mask ? mask + sequence.begin : nullptr, channels, state_rows};
    T* y = l.buffer<T>(CAUSAL_CONV1D_Y) + at;
    const int64_t end = begin + p.tokensPerThreadgroup < tokens ? begin + p.tokensPerThreadgroup : tokens;
    // Inlined even so: as a call it takes a sixth more time of a single token.
    const auto one_token = [&](int64_t t, int64_t c, int n) __attribute__((always_inline)) {
      vf32 sum = load_lanes(offset + c, n);
      for (int64_t i = 0; i <= history; ++i)
        sum = fma(load_lanes(by_token + i * p.channelsPerThreadgroup + c, n), rows.at(t - history + i, c0 + c, n), sum);
      finish(y + t * channels + c0 + c, sum, p.silu, n);
    };
    int64_t t = begin;
    for (; t < end;) {
      const bool four = p.kernelSize == 4 && t + 4 <= end && rows.all_kept(t - 3, t + 4);
      for_lanes(
          width,
          [&](size_t c) {
            if (!four) return one_token(t, c, kLanes);
            vf32 inputs[7], w[4];
            for (int i = 0; i < 4; ++i) w[i] = load(by_token + i * p.channelsPerThreadgroup + c);
            for (int i = 0; i < 7; ++i) inputs[i] = rows.kept_at(t - 3 + i, c0 + c);
            four_tokens(y + t * channels + c0 + c, channels, inputs, w, load(offset + c), p.silu);
          },
          // A function of its own, so that the loop above keeps its registers.
          [&](size_t c, int n) __attribute__((noinline)) {
            for (int64_t j = t; j < (four ? t + 4 : t + 1); ++j) one_token(j, c, n);
          });
      t += four ? 4 : 1;
    }
    if (begin > 0 || !final_state) continue;
    // Ascending rows: in place, row i is read before it is written, and rows above it have not been touched.
    S* to = final_state + state_at + c0;
    for (int64_t i = 0; i < state_rows; ++i) {
      const int64_t from = tokens - state_rows + i;
      for_lanes(
          width, [&](size_t c) { store(to + i * channels + c, rows.at(from, c0 + c, kLanes)); },
          [&](size_t c, int n) { store_partial(to + i * channels + c, rows.at(from, c0 + c, n), n); });
    }
  }
  return 0;
}

}  // namespace

MLXTS_KERNEL(causal_conv1d_f32_f32_f32, causal_conv1d<float, float, float>)
MLXTS_KERNEL(causal_conv1d_f16_f16_f16, causal_conv1d<f16, f16, f16>)
MLXTS_KERNEL(causal_conv1d_f16_f16_f32, causal_conv1d<f16, f16, float>)
MLXTS_KERNEL(causal_conv1d_f16_f32_f16, causal_conv1d<f16, float, f16>)
MLXTS_KERNEL(causal_conv1d_f16_f32_f32, causal_conv1d<f16, float, float>)
MLXTS_KERNEL(causal_conv1d_bf16_bf16_bf16, causal_conv1d<bf16, bf16, bf16>)
MLXTS_KERNEL(causal_conv1d_bf16_bf16_f32, causal_conv1d<bf16, bf16, float>)
MLXTS_KERNEL(causal_conv1d_bf16_f32_bf16, causal_conv1d<bf16, float, bf16>)
MLXTS_KERNEL(causal_conv1d_bf16_f32_f32, causal_conv1d<bf16, float, float>)
