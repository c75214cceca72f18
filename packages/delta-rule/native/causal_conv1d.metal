// One thread: neighboring channels over a run of tokens of one sequence. Only the first run, which even an empty
// sequence has, reads the initial state. So its threads write the final one, which may be in the same place, without a
// barrier.
#include "causal_conv1d.params.h"
#include "sequences.h"

using namespace metal;
using namespace mlxts;

constant constexpr uint kTokens = CAUSAL_CONV1D_TOKENS_PER_STEP;
static_assert(CAUSAL_CONV1D_CHANNELS_PER_THREAD == 4, "the channels of a thread are a float4");

// The first `n` of four elements that are `stride` apart, zeros for the others.
template <typename T>
METAL_FUNC float4 load_some(device const T* from, uint stride, uint n) {
  if (n == 4) return float4(float(from[0]), float(from[stride]), float(from[2 * stride]), float(from[3 * stride]));
  float4 v = float4(float(from[0]), 0.0f, 0.0f, 0.0f);
  if (n > 1) v[1] = float(from[stride]);
  if (n > 2) v[2] = float(from[2 * stride]);
  return v;
}

template <typename T>
METAL_FUNC void store_some(device T* to, float4 v, uint n) {
  if (n == 4) return store4(to, v);
  to[0] = T(v[0]);
  if (n > 1) to[1] = T(v[1]);
  if (n > 2) to[2] = T(v[2]);
}

// The inputs of n channels of one sequence: the rows of its state, then those of x. Row 0 is the first of x.
template <typename T, typename S>
struct Inputs {
  device const T* x;         // [tokens, channels]
  device const S* state;     // [stateRows, channels]
  device const uchar* mask;  // [tokens]
  uint tokens, channels, stateRows, n;
  bool has_state, has_mask;

  // Row t ≥ −stateRows; zeros for a token that the mask skips, and behind the last one.
  float4 at(int t) const {
    if (t >= int(tokens) || (t < 0 && !has_state)) return float4(0.0f);
    if (t < 0) return load_some(state + ulong(t + int(stateRows)) * channels, 1, n);
    return has_mask && mask[t] == 0 ? float4(0.0f) : load_some(x + ulong(t) * channels, 1, n);
  }
};

// Tokens t … t + kTokens − 1, which share their inputs; `weight` is that of this thread's first channel. `KernelSize`
// 0: any, known at run time.
template <uint KernelSize, typename T, typename W, typename S>
METAL_FUNC void convolve(Inputs<T, S> inputs, device const W* weight, float4 bias, device T* y, uint t,
                         constant CausalConv1dParams& p) {
  const uint size = KernelSize == 0 ? p.kernelSize : KernelSize;
  const int first = int(t) + 1 - int(size);
  float4 rows[kTokens], sums[kTokens];
  for (uint j = 0; j < kTokens; ++j) sums[j] = bias;
  for (uint j = 1; j < kTokens; ++j) rows[j] = inputs.at(first + int(j) - 1);
  for (uint i = 0; i < size; ++i) {
    for (uint j = 1; j < kTokens; ++j) rows[j - 1] = rows[j];
    rows[kTokens - 1] = inputs.at(first + int(i + kTokens) - 1);
    const float4 factor = load_some(weight + i, size, inputs.n);
    for (uint j = 0; j < kTokens; ++j) sums[j] = fma(factor, rows[j], sums[j]);
  }
  for (uint j = 0; j < kTokens && t + j < inputs.tokens; ++j) {
    float4 sum = sums[j];
    if (p.silu) sum = times_sigmoid(sum, float4(1.0f), sum);
    store_some(y + ulong(t + j) * inputs.channels, sum, inputs.n);
  }
}

// One token of four channels by four taps, with a state: a decode step. What it reads it asks for at once, the weights
// before it waits for all else.
template <typename T, typename W, typename S>
METAL_FUNC void convolve_once(device const T* x, device const W* weight, device const W* bias, device const S* initial,
                              device T* y, device S* last, constant CausalConv1dParams& p) {
  float4 factors[4], rows[4];
  MLXTS_UNROLL for (uint c = 0; c < 4; ++c) factors[c] = load4(weight + 4 * c);  // the taps of a channel
  float4 sum = p.present & CAUSAL_CONV1D_HAS_BIAS ? load4(bias) : float4(0.0f);
  wait_for_kernels();
  MLXTS_UNROLL for (uint i = 0; i < 3; ++i) rows[i] = load4(initial + ulong(i) * p.channels);
  rows[3] = load4(x);
  MLXTS_UNROLL for (uint i = 0; i < 4; ++i) sum =
      fma(float4(factors[0][i], factors[1][i], factors[2][i], factors[3][i]), rows[i], sum);
  store4(y, p.silu ? times_sigmoid(sum, float4(1.0f), sum) : sum);
  if (!(p.present & CAUSAL_CONV1D_HAS_FINAL_STATE)) return;
  MLXTS_UNROLL for (uint i = 0; i < 3; ++i) store4(last + ulong(i) * p.channels, rows[i + 1]);
}

// Whether each sequence has one token that convolve_once takes.
METAL_FUNC bool is_step(constant CausalConv1dParams& p) {
  constexpr uint kOthers = CAUSAL_CONV1D_HAS_CU_SEQLENS | CAUSAL_CONV1D_HAS_MASK;
  return p.tokens == 1 && p.kernelSize == 4 && p.stateRows == 3 &&
         (p.present & (CAUSAL_CONV1D_HAS_INITIAL_STATE | kOthers)) == CAUSAL_CONV1D_HAS_INITIAL_STATE;
}

// The state after all tokens: the last rows of state and x together. In place each row is read before it is written,
// since row i comes from row i + tokens. Rows are read some at a time: no read waits for a write.
template <typename T, typename S>
METAL_FUNC void store_state(device S* state, Inputs<T, S> inputs) {
  constexpr uint kAtOnce = 3;  // the state of four taps
  for (uint first = 0; first < inputs.stateRows; first += kAtOnce) {
    float4 rows[kAtOnce];
    MLXTS_UNROLL for (uint i = 0; i < kAtOnce; ++i) rows[i] =
        inputs.at(int(inputs.tokens + first + i) - int(inputs.stateRows));
    MLXTS_UNROLL for (uint i = 0; i < kAtOnce; ++i) if (first + i < inputs.stateRows)
        store_some(state + ulong(first + i) * inputs.channels, rows[i], inputs.n);
  }
}

template <typename T, typename W, typename S>
kernel void causal_conv1d(device const T* x [[buffer(CAUSAL_CONV1D_X)]],
                          device const W* weight [[buffer(CAUSAL_CONV1D_WEIGHT)]],
                          device const W* bias [[buffer(CAUSAL_CONV1D_BIAS)]],
                          device const S* initial_state [[buffer(CAUSAL_CONV1D_INITIAL_STATE)]],
                          device const Index* cu_seqlens [[buffer(CAUSAL_CONV1D_CU_SEQLENS)]],
                          device const uchar* mask [[buffer(CAUSAL_CONV1D_MASK)]],
                          device T* y [[buffer(CAUSAL_CONV1D_Y)]],
                          device S* final_state [[buffer(CAUSAL_CONV1D_FINAL_STATE)]],
                          constant CausalConv1dParams& p [[buffer(CAUSAL_CONV1D_PARAMS)]],
                          device MlxtsFault* fault [[buffer(CAUSAL_CONV1D_FAULT)]],
                          uint3 group [[threadgroup_position_in_grid]],
                          uint3 position [[thread_position_in_threadgroup]], uint3 size [[threads_per_threadgroup]],
                          uint lane [[thread_index_in_simdgroup]]) {
  const uint c = (group.x * size.x + position.x) * CAUSAL_CONV1D_CHANNELS_PER_THREAD;
  if (is_step(p) && c + CAUSAL_CONV1D_CHANNELS_PER_THREAD <= p.channels) {
    const ulong at = ulong(group.z) * p.channels + c, state_at = ulong(group.z) * p.stateRows * p.channels + c;
    return convolve_once(x + at, weight + ulong(c) * p.kernelSize, bias + c, initial_state + state_at, y + at,
                         final_state + state_at, p);
  }
  wait_for_kernels();
  const Indices cuts = {cu_seqlens, bool(p.present & CAUSAL_CONV1D_HAS_CU_SEQLENS)};
  if (!packed_right(cuts, p.sequences, p.tokens, {fault, lane}, CAUSAL_CONV1D_FAULT_CU_SEQLENS)) return;
  if (c >= p.channels) return;
  Slot slot = {group.z, group.y};
  if (cuts) slot = slot_at(cuts, group.y, p.sequences, p.tokens, 0, p.tokensPerThreadgroup);
  const Sequence sequence = sequence_at(cuts, slot.sequence, p.tokens);
  const ulong at = ulong(sequence.begin) * p.channels + c;
  const ulong state_at = ulong(slot.sequence) * p.stateRows * p.channels + c;
  const uint n = min(p.channels - c, uint(CAUSAL_CONV1D_CHANNELS_PER_THREAD));
  const Inputs<T, S> inputs = {x + at,
                               initial_state + state_at,
                               mask + sequence.begin,
                               sequence.tokens,
                               p.channels,
                               p.stateRows,
                               n,
                               (p.present & CAUSAL_CONV1D_HAS_INITIAL_STATE) != 0,
                               (p.present & CAUSAL_CONV1D_HAS_MASK) != 0};
  device const W* own_weight = weight + ulong(c) * p.kernelSize;
  const float4 own_bias = p.present & CAUSAL_CONV1D_HAS_BIAS ? load_some(bias + c, 1, n) : float4(0.0f);
  const uint run = p.tokensPerThreadgroup / size.y;
  const uint begin = slot.chunk * p.tokensPerThreadgroup + position.y * run;
  for (uint t = begin; t < min(begin + run, sequence.tokens); t += kTokens) {
    if (p.kernelSize == 4)
      convolve<4>(inputs, own_weight, own_bias, y + at, t, p);
    else
      convolve<0>(inputs, own_weight, own_bias, y + at, t, p);
  }
  if (begin == 0 && (p.present & CAUSAL_CONV1D_HAS_FINAL_STATE)) store_state(final_state + state_at, inputs);
}

#define CAUSAL_CONV1D(name, T, W, S) \
  template [[host_name("causal_conv1d_" name)]] [[kernel]] decltype(causal_conv1d<T, W, S>) causal_conv1d<T, W, S>;
CAUSAL_CONV1D("f32_f32_f32", float, float, float)
CAUSAL_CONV1D("f16_f16_f16", half, half, half)
CAUSAL_CONV1D("f16_f16_f32", half, half, float)
CAUSAL_CONV1D("f16_f32_f16", half, float, half)
CAUSAL_CONV1D("f16_f32_f32", half, float, float)
CAUSAL_CONV1D("bf16_bf16_bf16", bfloat, bfloat, bfloat)
CAUSAL_CONV1D("bf16_bf16_f32", bfloat, bfloat, float)
CAUSAL_CONV1D("bf16_f32_bf16", bfloat, float, bfloat)
CAUSAL_CONV1D("bf16_f32_f32", bfloat, float, float)
