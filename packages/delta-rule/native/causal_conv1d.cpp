// One threadgroup: a block of channels over a block of tokens of one sequence. The first block of tokens, which even an
// empty sequence has, also writes the final state, after it has read the initial one.
#include "causal_conv1d.params.h"
#include "cpu_kernel.h"
#include "matrix_rows.h"
#include "sequences.h"
#include "simd.h"

using namespace mlxts;

namespace {

constexpr int64_t kChannels = CAUSAL_CONV1D_CHANNELS_PER_THREADGROUP;
// How far ahead of their use weights and rows of the state are fetched, in bytes. Of one token they are most of what is
// read, in pieces too short for the processor to foresee the next: from memory it takes 70 % of the time so.
constexpr ptrdiff_t kWeightsAhead = 4096, kStateAhead = 512;

MLXTS_INLINE void fetch_to_write(const void* p, ptrdiff_t ahead) {
  __builtin_prefetch(reinterpret_cast<const void*>(uintptr_t(p) + uintptr_t(ahead)), 1);
}

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

// The inputs of one sequence: the rows of its state, then those of x. Row 0 is the first of x.
template <typename T, typename S>
struct Inputs {
  const T* x;           // [tokens, channels]
  const S* state;       // [state_rows, channels], null: zeros
  const uint8_t* mask;  // [tokens], null: no token is skipped
  int64_t channels, state_rows;

  // n channels of row t ≥ −state_rows, from channel c on; zeros for a token that the mask skips.
  MLXTS_INLINE vf32 at(int64_t t, int64_t c, int n) const {
    if (t >= 0) return mask && !mask[t] ? vf32{} : load_lanes(x + t * channels + c, n);
    return state ? load_lanes(state + (t + state_rows) * channels + c, n) : vf32{};
  }
  // A vector of row t, which the mask does not skip.
  MLXTS_INLINE vf32 unmasked_at(int64_t t, int64_t c) const {
    if (t >= 0) return load(x + t * channels + c);
    return state ? load(state + (t + state_rows) * channels + c) : vf32{};
  }
  // Row t where it lies as the state stores it; null where it does not.
  const S* stored_at(int64_t t) const {
    if (t < 0) return state ? state + (t + state_rows) * channels : nullptr;
    if constexpr (std::is_same_v<T, S>) return mask && !mask[t] ? nullptr : x + t * channels;
    return nullptr;
  }
  bool any_masked(int64_t first, int64_t end) const {
    if (mask)
      for (int64_t t = first < 0 ? 0 : first; t < end; ++t)
        if (!mask[t]) return true;
    return false;
  }
};

// A block of channels of one sequence, with their weights and biases in f32.
template <typename T, typename S>
struct Block {
  Inputs<T, S> inputs;
  T* y;                  // [tokens, channels]
  const float* weights;  // [kernel_size, kChannels]
  const float* bias;     // [kChannels]
  int64_t first, width;  // channels
  int64_t kernel_size;
  bool silu_on;

  MLXTS_INLINE T* output(int64_t t, int64_t c) const { return y + t * inputs.channels + first + c; }

  // n channels of token t. Inlined: as a call it takes a sixth more time of a single token.
  MLXTS_INLINE void one_token(int64_t t, int64_t c, int n) const {
    if (t == 0 && inputs.state)
      for (int64_t i = 0; i < inputs.state_rows; ++i)
        fetch_to_write(inputs.state + i * inputs.channels + first + c, kStateAhead);
    vf32 sum = load_lanes(bias + c, n);
    for (int64_t i = 0; i < kernel_size; ++i)
      sum = fma(load_lanes(weights + i * kChannels + c, n), inputs.at(t - kernel_size + 1 + i, first + c, n), sum);
    store_lanes(output(t, c), silu_on ? silu<T>(sum) : sum, n);
  }

  // Rows lie too far apart for the processor to foresee which ones come next, to read and to write; there may be none.
  // Of several vectors in a line the first one asks. Rows to write are not worth it by way of the second cache.
  MLXTS_INLINE void fetch_four_tokens(int64_t t, int64_t c) const {
    if (c * sizeof(T) % 64 != 0) return;
    for (int64_t j = 0; j < 4; ++j) {
      const auto at = ptrdiff_t(((t + j) * inputs.channels + first + c) * sizeof(T));
      fetch<kRowsLocality>(inputs.x, at);
      if (!kRowsToSecondCache) fetch_to_write(y, at);
    }
  }

  // A vector of channels of tokens t … t + 3, which share their inputs, for kernel size 4: row(i) for token t − 3 + i.
  template <typename Row>
  MLXTS_INLINE void four_tokens(int64_t t, int64_t c, Row row) const {
    const vf32 start = load(bias + c);
    vf32 rows[7], sums[4] = {start, start, start, start};
    MLXTS_UNROLL
    for (int i = 0; i < 7; ++i) rows[i] = row(i);
    MLXTS_UNROLL
    for (int i = 0; i < 4; ++i) {
      const vf32 factor = load(weights + i * kChannels + c);
      MLXTS_UNROLL
      for (int j = 0; j < 4; ++j) sums[j] = fma(factor, rows[i + j], sums[j]);
    }
    T* to = output(t, c);
    if (silu_on)
      for (vf32& sum : sums) sum = silu<T>(sum);
    for (int j = 0; j < 4; ++j) store(to + j * inputs.channels, sums[j]);
    fetch_four_tokens(t + 4, c);
  }
  // All channels of tokens t … t + 3, of which none is masked, nor the three before.
  __attribute__((noinline)) void convolve_four(int64_t t) const {
    const auto rest = [&](size_t c, int n) {
      for (int j = 0; j < 4; ++j) one_token(t + j, c, n);
    };
    if (t < 3) {
      const auto four = [&](size_t c) {
        four_tokens(t, c, [&](int i) { return inputs.unmasked_at(t - 3 + i, first + c); });
      };
      for_lanes(width, four, rest);
      return;
    }
    const T* x = inputs.x + (t - 3) * inputs.channels + first;
    const int64_t stride = inputs.channels;
    for_lanes(width, [&](size_t c) { four_tokens(t, c, [=](int i) { return load(x + c + i * stride); }); }, rest);
  }

  MLXTS_INLINE void convolve(int64_t begin, int64_t end) const {
    for (int64_t t = begin; t < end;) {
      if (kernel_size == 4 && t + 4 <= end && !inputs.any_masked(t - 3, t + 4)) {
        convolve_four(t);
        t += 4;
      } else {
        for_lanes(width, [&](size_t c) { one_token(t, c, kLanes); }, [&](size_t c, int n) { one_token(t, c, n); });
        ++t;
      }
    }
  }

  // The state after `tokens` tokens: the last rows of state and x together. In place each row is read before it is
  // written, since row i comes from row i + tokens.
  MLXTS_INLINE void store_state(S* state, int64_t tokens) const {
    for (int64_t i = 0; i < inputs.state_rows; ++i) {
      const int64_t t = tokens - inputs.state_rows + i;
      S* to = state + i * inputs.channels + first;
      if (const S* from = inputs.stored_at(t)) {
        if (from + first != to) memmove(to, from + first, width * sizeof(S));
        continue;
      }
      for_lanes(
          width, [&](size_t c) { store(to + c, inputs.at(t, first + c, kLanes)); },
          [&](size_t c, int n) { store_partial(to + c, inputs.at(t, first + c, n), n); });
    }
  }
};

// weights[i][c] = by_channel[c][i], in f32
template <typename W>
MLXTS_INLINE void transpose_weights(const W* by_channel, int64_t width, int64_t kernel_size, float* weights) {
  int64_t c = 0;
  if (kernel_size == 4)
    for (; c + kLanes <= width; c += kLanes) {
      vf32 v[4];
      constexpr ptrdiff_t kBytes = 4 * kLanes * sizeof(W);
      for (ptrdiff_t at = 0; at < kBytes; at += 64) fetch(by_channel + 4 * c, kWeightsAhead + at);
      if constexpr (std::is_same_v<W, bf16>) {
        // Factors 0 and 1 of a channel are one element, 2 and 3 the next.
        vu32 low = load_bf16x2(by_channel + 4 * c), high = load_bf16x2(by_channel + 4 * c + 2 * kLanes);
        deinterleave(low, high);
        v[0] = widen_first(low);
        v[1] = widen_second(low);
        v[2] = widen_first(high);
        v[3] = widen_second(high);
      } else {
        // Factors 0 and 2 of a vector of channels come to lie in two vectors, then each in its own; so do 1 and 3.
        for (int i = 0; i < 4; ++i) v[i] = load(by_channel + 4 * c + i * kLanes);
        deinterleave(v[0], v[1]);
        deinterleave(v[2], v[3]);
        deinterleave(v[0], v[2]);
        deinterleave(v[1], v[3]);
      }
      for (int i = 0; i < 4; ++i) store(weights + i * kChannels + c, v[i]);
    }
  for (; c < width; ++c)
    for (int64_t i = 0; i < kernel_size; ++i) weights[i * kChannels + c] = to_f32(by_channel[c * kernel_size + i]);
}

// Weights and biases of a block of channels in f32, the weights with channels side by side.
template <typename W>
MLXTS_INLINE void load_weights(const CausalConv1dScratch& scratch, const W* weight, const W* bias, int64_t first,
                               int64_t width, int64_t kernel_size) {
  transpose_weights(weight + first * kernel_size, width, kernel_size, scratch.weights);
  if (bias)
    convert_row(bias + first, width, scratch.bias);
  else
    memset(scratch.bias, 0, width * sizeof(float));
}

template <typename T, typename W, typename S>
int32_t causal_conv1d(const Launch& l) {
  const auto& p = l.args<CausalConv1dParams>();
  const Indices cu_seqlens = l.indices(CAUSAL_CONV1D_CU_SEQLENS);
  if (!packed_right(cu_seqlens, p.sequences, p.tokens, l, CAUSAL_CONV1D_FAULT_CU_SEQLENS)) return 1;
  const W* weight = l.buffer<const W>(CAUSAL_CONV1D_WEIGHT);
  const W* bias = l.buffer<const W>(CAUSAL_CONV1D_BIAS);
  const S* initial_state = l.buffer<const S>(CAUSAL_CONV1D_INITIAL_STATE);
  const uint8_t* mask = l.buffer<const uint8_t>(CAUSAL_CONV1D_MASK);
  S* final_state = l.buffer<S>(CAUSAL_CONV1D_FINAL_STATE);
  const auto scratch = scratch_of(l, p);
  const int64_t channels = p.channels, state_rows = p.stateRows, block_tokens = p.tokensPerThreadgroup;
  const uint32_t blocks = l.threadgroups[0], slots = l.threadgroups[1];
  int64_t loaded = -1;
  for (uint64_t group = l.begin; group < l.end; ++group) {
    const Slot slot = slot_at(cu_seqlens, group / blocks, p.sequences, p.tokens, slots, block_tokens);
    const Sequence sequence = sequence_at(cu_seqlens, slot.sequence, p.tokens);
    const int64_t tokens = int64_t(sequence.tokens), begin = int64_t(slot.chunk) * block_tokens;
    if (begin > 0 && begin >= tokens) continue;
    const int64_t first = int64_t(group % blocks) * kChannels;
    const int64_t width = channels - first < kChannels ? channels - first : kChannels;
    if (first != loaded) load_weights(scratch, weight, bias, first, width, p.kernelSize);
    loaded = first;
    const size_t at = sequence.begin * channels, state_at = slot.sequence * state_rows * channels;
    const Block<T, S> block{
        {l.buffer<const T>(CAUSAL_CONV1D_X) + at, initial_state ? initial_state + state_at : nullptr,
         mask ? mask + sequence.begin : nullptr, channels, state_rows},
        l.buffer<T>(CAUSAL_CONV1D_Y) + at,
        scratch.weights,
        scratch.bias,
        first,
        width,
        p.kernelSize,
        p.silu != 0};
    block.convolve(begin, begin + block_tokens < tokens ? begin + block_tokens : tokens);
    if (begin == 0 && final_state) block.store_state(final_state + state_at, tokens);
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
