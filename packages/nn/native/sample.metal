#include "argmax_metal.h"
#include "radix_search.h"
#include "sampling.h"

using namespace metal;
using namespace mlxts;

// exp(x) for x <= 0 within 1 ulp, step by step as on CPUs with fused multiply-adds: the same weights and so the same
// ids.
METAL_FUNC float exp_of_negative(float x) {
  const float bounded = max(x, -104.0f);
  const float shifted = fma(bounded, 1.44269502f, 12582912.0f);
  const int n = as_type<int>(shifted) - 0x4b400000;
  const float k = shifted - 12582912.0f;
  const float r = fma(k, -1.42860677e-06f, fma(k, -0.693145752f, bounded));
  float p = 0.000198412701f;
  p = fma(p, r, 0.00138888892f);
  p = fma(p, r, 0.00833333377f);
  p = fma(p, r, 0.0416666679f);
  p = fma(p, r, 0.166666672f);
  p = fma(p, r, 0.5f);
  p = fma(p, r, 1.0f);
  p = fma(p, r, 1.0f);
  const int half_n = n >> 1;
  return p * as_type<float>((half_n + 127) << 23) * as_type<float>((n - half_n + 127) << 23);
}

// Weights i … i + 3 of n; 0 beyond the end.
METAL_FUNC uint4 load_weights(device const uint* weights, uint i, uint n) {
  if (i + 4 <= n) return uint4(weights[i], weights[i + 1], weights[i + 2], weights[i + 3]);
  uint4 out = uint4(0);
  for (uint j = 0; i + j < n; ++j) out[j] = weights[i + j];
  return out;
}

METAL_FUNC uint4 indices_from(uint i) { return uint4(i, i + 1, i + 2, i + 3); }

// Larger keys first.
template <typename T>
METAL_FUNC uint descending(uint key) {
  return 2 * sign_bit<T>() - 1 - key;
}

// The key of -infinity.
template <typename T>
METAL_FUNC uint lowest_key() {
  return sign_bit<T>() - infinity_bits<T>();
}

// The largest logit of each thread, where it is above -infinity; larger ones first.
template <typename T>
struct LargestFirst {
  threadgroup const uint* keys;  // [threads]
  FourElements at(uint i) const {
    FourElements out;
    for (uint j = 0; j < 4; ++j) {
      out.key[j] = descending<T>(keys[i + j]);
      out.weight[j] = keys[i + j] > lowest_key<T>();
    }
    return out;
  }
};

// Logits with a key of at least `least`; larger ones first.
template <typename T>
struct LogitsFirst {
  device const T* logits;
  uint n, least;
  FourElements at(uint i) const {
    const uint4 keys = keys_of(logits, i, n);
    FourElements out;
    for (uint j = 0; j < 4; ++j) {
      out.key[j] = descending<T>(keys[j]);
      out.weight[j] = keys[j] >= least;
    }
    return out;
  }
};

// Logits with one key, in the order of ids.
template <typename T>
struct EqualLogits {
  device const T* logits;
  uint n, key;
  FourElements at(uint i) const {
    const uint4 keys = keys_of(logits, i, n);
    FourElements out = {indices_from(i), uint4(0)};
    for (uint j = 0; j < 4; ++j) out.weight[j] = keys[j] == key;
    return out;
  }
};

// Larger weights first.
struct WeightsFirst {
  device const uint* weights;
  uint n;
  FourElements at(uint i) const {
    const uint4 w = load_weights(weights, i, n);
    return {SAMPLE_LARGEST_WEIGHT - w, w};
  }
};

// Weights from `least` to `most` in the order of ids; those of `least` up to id `last`.
struct WeightsById {
  device const uint* weights;
  uint n, least, most, last;
  FourElements at(uint i) const {
    const uint4 w = load_weights(weights, i, n);
    FourElements out = {indices_from(i), uint4(0)};
    for (uint j = 0; j < 4; ++j)
      if (w[j] <= most && (w[j] > least || (w[j] == least && i + j <= last))) out.weight[j] = w[j];
    return out;
  }
};

struct Target {
  ulong sum;
  ulong target(ulong) const { return sum; }
};

// The first sum that exceeds the target has the share.
struct Share {
  uint share;  // in units of 2^-32
  ulong target(ulong total) const { return sum_with_share(total, share) - 1; }
};

struct Draw {
  ulong r;
  ulong target(ulong total) const { return drawn_sum(r, total); }
};

// The logits that are kept: those with keys above `least`, and those with this key up to id `last`.
struct KeptLogits {
  uint least, last;
};

template <typename T>
METAL_FUNC KeptLogits keep_top_k(device const T* logits, uint n, uint topK, thread Searcher& searcher, Span span,
                                 uint indexBits) {
  constexpr uint kKeyBits = 8 * sizeof(T);
  KeptLogits kept = {lowest_key<T>() + 1, n - 1};
  if (topK == 0) return kept;
  const Target kth = {topK - 1};
  // If so many threads have a logit as large, so many logits are as large: few need to be counted.
  const Span threads = {4 * searcher.index, searcher.threads, 4 * searcher.threads};
  const Found bound = searcher.find(LargestFirst<T>{searcher.scratch.largestOfThreads}, threads, kKeyBits, kth);
  const uint least = bound.weight > 0 ? descending<T>(bound.key) : kept.least;
  const Found found = searcher.find(LogitsFirst<T>{logits, n, least}, span, kKeyBits, kth);
  if (found.weight > 0) kept.least = descending<T>(found.key);
  if (found.rest + 1 < found.weight)
    kept.last = searcher.find(EqualLogits<T>{logits, n, kept.least}, span, indexBits, Target{found.rest}).key;
  return kept;
}

// Writes the weights of a thread's logits, 0 for those that are not kept. Returns the part of `span` from its first
// weight above 0 to its last.
template <typename T>
METAL_FUNC Span weigh(device const T* logits, uint n, float inverseTemperature, Largest best, KeptLogits kept,
                      device uint* weights, Span span) {
  const float largest = float(logits[best.at]);
  Span weighted = {n, 0, span.step};
  for (uint i = span.from; i < span.to; i += span.step) {
    const uint4 keys = keys_of(logits, i, n);
    bool any = false;
    for (uint j = 0; j < 4 && i + j < n; ++j) {
      const float below = (float(logits[i + j]) - largest) * inverseTemperature;
      const float scaled = fma(exp_of_negative(below), float(SAMPLE_LARGEST_WEIGHT), 0.5f);
      uint weight = keys[j] == best.key ? SAMPLE_LARGEST_WEIGHT : uint(scaled);
      if (keys[j] < kept.least || (keys[j] == kept.least && i + j > kept.last)) weight = 0;
      weights[i + j] = weight;
      any = any || weight > 0;
    }
    if (!any) continue;
    weighted.from = min(weighted.from, i);
    weighted.to = i + 1;
  }
  return weighted;
}

// The weights that are kept: those above `least`, and those of `least` up to id `last`.
struct KeptWeights {
  uint least, last;
};

METAL_FUNC KeptWeights keep_top_p(device const uint* weights, uint n, uint topP, thread Searcher& searcher, Span span,
                                  uint indexBits) {
  KeptWeights kept = {0, n - 1};
  if (topP == 0) return kept;
  const Found found = searcher.find(WeightsFirst{weights, n}, span, 32, Share{topP});
  kept.least = SAMPLE_LARGEST_WEIGHT - found.key;
  if (found.rest + kept.least < found.weight) {
    const WeightsById ties = {weights, n, kept.least, kept.least, n - 1};
    kept.last = searcher.find(ties, span, indexBits, Target{found.rest}).key;
  }
  return kept;
}

// One threadgroup: one row. A thread has the same elements in every pass, so that weights need no barrier.
template <typename T>
kernel void sample(device const T* logits [[buffer(SAMPLE_LOGITS)]], device const Index* step [[buffer(SAMPLE_STEP)]],
                   device uint* weights [[buffer(SAMPLE_WEIGHTS)]], device uint* ids [[buffer(SAMPLE_IDS)]],
                   constant SampleParams& p [[buffer(SAMPLE_PARAMS)]], threadgroup uchar* memory [[threadgroup(0)]],
                   uint row [[threadgroup_position_in_grid]], uint index [[thread_position_in_threadgroup]],
                   uint threads [[threads_per_threadgroup]], uint lane [[thread_index_in_simdgroup]],
                   uint simdgroup [[simdgroup_index_in_threadgroup]], uint simdgroups [[simdgroups_per_threadgroup]]) {
  const SampleScratch scratch = scratch_of(memory, p);
  const uint n = p.dim, indexBits = 32 - clz((n - 1) | 1);
  logits += ulong(row) * n;
  weights += ulong(row) * n;
  Searcher searcher = {scratch_of(memory, p), 0, index, threads, lane, simdgroup};
  Span span = {4 * index, n, 4 * threads};

  searcher.clear();
  const Largest mine = largest_of_thread(logits, n, index, threads);
  scratch.largestOfThreads[index] = mine.key;
  const Largest best = largest_of_threadgroup(mine, scratch.largestOfSimdgroups, lane, simdgroup, simdgroups);
  if (best.key <= lowest_key<T>()) {
    if (index == 0) ids[row] = best.at;
    return;
  }
  const KeptLogits topK = keep_top_k(logits, n, p.topK, searcher, span, indexBits);
  span = weigh(logits, n, p.inverseTemperature, best, topK, weights, span);
  const KeptWeights topP = keep_top_p(weights, n, p.topP, searcher, span, indexBits);
  const WeightsById drawable = {weights, n, topP.least, SAMPLE_LARGEST_WEIGHT, topP.last};
  const Draw draw = {random_bits(p.seed, uint(read_index(step, 0)), row)};
  const Found id = searcher.find(drawable, span, indexBits, draw);
  if (index == 0) ids[row] = id.key;
}

#define SAMPLE(name, T) template [[host_name("sample_" name)]] [[kernel]] decltype(sample<T>) sample<T>;
SAMPLE("f32", float)
SAMPLE("f16", half)
SAMPLE("bf16", bfloat)
