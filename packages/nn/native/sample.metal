#include "largest.h"
#include "radix.h"
#include "sample.params.h"

using namespace metal;
using namespace mlxts;

constant constexpr uint kLargestWeight = 1u << 30;

// r in [0, 2^64): Philox4x32-10.
METAL_FUNC ulong random_bits(uint seed, uint step, uint row) {
  uint counter[4] = {step, row, 0, 0}, key[2] = {seed, 0};
  for (uint round = 0; round < 10; ++round) {
    const ulong a = ulong(counter[0]) * 0xD2511F53, b = ulong(counter[2]) * 0xCD9E8D57;
    counter[0] = uint(b >> 32) ^ counter[1] ^ key[0];
    counter[2] = uint(a >> 32) ^ counter[3] ^ key[1];
    counter[1] = uint(b);
    counter[3] = uint(a);
    key[0] += 0x9E3779B9;
    key[1] += 0xBB67AE85;
  }
  return ulong(counter[1]) << 32 | counter[0];
}

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

METAL_FUNC uint4 load_weights(device const uint* weights, uint i, uint n) {
  if (i + 4 <= n) return uint4(weights[i], weights[i + 1], weights[i + 2], weights[i + 3]);
  uint4 out = uint4(0);
  for (uint j = 0; i + j < n; ++j) out[j] = weights[i + j];
  return out;
}

METAL_FUNC uint4 indices_from(uint i) { return uint4(i, i + 1, i + 2, i + 3); }

// The largest logit of each thread that is above -infinity, the largest first.
template <typename T>
struct LargestFirst {
  threadgroup const uint* keys;
  Four at(uint i) const {
    Four out;
    for (uint j = 0; j < 4; ++j) {
      out.key[j] = 2 * sign_bit<T>() - 1 - keys[i + j];
      out.weight[j] = keys[i + j] > sign_bit<T>() - infinity_bits<T>();
    }
    return out;
  }
};

// Logits with a key of at least `least`, the largest first.
template <typename T>
struct LogitsFirst {
  device const T* logits;
  uint n, least;
  Four at(uint i) const {
    const uint4 keys = keys_of(logits, i, n);
    Four out;
    for (uint j = 0; j < 4; ++j) {
      out.key[j] = 2 * sign_bit<T>() - 1 - keys[j];
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
  Four at(uint i) const {
    const uint4 keys = keys_of(logits, i, n);
    Four out = {indices_from(i), uint4(0)};
    for (uint j = 0; j < 4; ++j) out.weight[j] = keys[j] == key;
    return out;
  }
};

// The largest weights first.
struct WeightsFirst {
  device const uint* weights;
  uint n;
  Four at(uint i) const {
    const uint4 w = load_weights(weights, i, n);
    return {kLargestWeight - w, w};
  }
};

// In the order of ids weights from `least` to `most`, those of `least` up to id `last`.
struct WeightsById {
  device const uint* weights;
  uint n, least, most, last;
  Four at(uint i) const {
    const uint4 w = load_weights(weights, i, n);
    Four out = {indices_from(i), uint4(0)};
    for (uint j = 0; j < 4; ++j)
      if (w[j] <= most && (w[j] > least || (w[j] == least && i + j <= last))) out.weight[j] = w[j];
    return out;
  }
};

struct Target {
  ulong sum;
  ulong target(ulong) const { return sum; }
};

// One less than the sum that has the share; `share` in units of 2^-32, as on the CPU.
struct Share {
  uint share;
  ulong target(ulong total) const {
    const ulong low = total & 0xffffffff;
    return (total >> 32) * share + ((low * share + 0xffffffff) >> 32) - 1;
  }
};

// floor(r · total / 2^64).
struct Draw {
  ulong r;
  ulong target(ulong total) const {
    const ulong r0 = r & 0xffffffff, r1 = r >> 32, t0 = total & 0xffffffff, t1 = total >> 32;
    const ulong middle = r1 * t0 + (r0 * t0 >> 32), other = r0 * t1 + (middle & 0xffffffff);
    return r1 * t1 + (middle >> 32) + (other >> 32);
  }
};

// One threadgroup: one row. Elements belong to the same thread in every pass, so that weights need no barrier.
template <typename T>
kernel void sample(device const T* logits [[buffer(SAMPLE_LOGITS)]], device const Index* step [[buffer(SAMPLE_STEP)]],
                   device uint* weights [[buffer(SAMPLE_WEIGHTS)]], device uint* ids [[buffer(SAMPLE_IDS)]],
                   constant SampleParams& p [[buffer(SAMPLE_PARAMS)]], threadgroup uint* shared [[threadgroup(0)]],
                   uint row [[threadgroup_position_in_grid]], uint index [[thread_position_in_threadgroup]],
                   uint threads [[threads_per_threadgroup]], uint lane [[thread_index_in_simdgroup]],
                   uint simdgroup [[simdgroup_index_in_threadgroup]], uint simdgroups [[simdgroups_per_threadgroup]]) {
  const uint n = p.dim, keyBits = 8 * sizeof(T), indexBits = 32 - clz((n - 1) | 1);
  const uint lowest = sign_bit<T>() - infinity_bits<T>();
  logits += ulong(row) * n;
  weights += ulong(row) * n;
  threadgroup uint* partial = shared + 2 * kTable + 5;
  threadgroup uint* largest = shared + SAMPLE_SHARED_WORDS;  // [threads]
  Searcher searcher = {shared, 0, index, threads, lane, simdgroup};
  Span span = {4 * index, n, 4 * threads};

  searcher.clear();
  const Largest mine = largest_of_thread(logits, n, index, threads);
  largest[index] = mine.key;
  const Largest best = largest_of_threadgroup(mine, partial, lane, simdgroup, simdgroups);
  if (best.key <= lowest) {
    if (index == 0) ids[row] = best.at;
    return;
  }

  // Logits that are kept: larger keys than `key`, and this key up to id `last`.
  uint key = lowest + 1, last = n - 1;
  if (p.topK > 0) {
    const Target kth = {p.topK - 1};
    // So many threads have a logit as large, so that many logits are: few need to be counted.
    const Found bound = searcher.find(LargestFirst<T>{largest}, {4 * index, threads, 4 * threads}, keyBits, kth);
    const uint least = bound.weight > 0 ? 2 * sign_bit<T>() - 1 - bound.key : key;
    const Found found = searcher.find(LogitsFirst<T>{logits, n, least}, span, keyBits, kth);
    if (found.weight > 0) key = 2 * sign_bit<T>() - 1 - found.key;
    if (found.left + 1 < found.weight)
      last = searcher.find(EqualLogits<T>{logits, n, key}, span, indexBits, Target{found.left}).key;
  }

  // From here on a thread looks only at what lies between its first and its last weight.
  const float most = float(logits[best.at]);
  Span kept = {n, 0, span.step};
  for (uint i = span.from; i < span.to; i += span.step) {
    const uint4 keys = keys_of(logits, i, n);
    bool any = false;
    for (uint j = 0; j < 4 && i + j < n; ++j) {
      const float below = (float(logits[i + j]) - most) * p.inverseTemperature;
      uint weight = keys[j] == best.key ? kLargestWeight : uint(fma(exp_of_negative(below), 1073741824.0f, 0.5f));
      if (keys[j] < key || (keys[j] == key && i + j > last)) weight = 0;
      weights[i + j] = weight;
      any = any || weight > 0;
    }
    if (!any) continue;
    kept.from = min(kept.from, i);
    kept.to = i + 1;
  }

  // Weights that are kept: larger ones than `least`, and this one up to id `last`.
  uint least = 0;
  last = n - 1;
  if (p.topP > 0) {
    const Found found = searcher.find(WeightsFirst{weights, n}, kept, 32, Share{p.topP});
    least = kLargestWeight - found.key;
    if (found.left + least < found.weight) {
      const WeightsById ties = {weights, n, least, least, n - 1};
      last = searcher.find(ties, kept, indexBits, Target{found.left}).key;
    }
  }
  const Draw draw = {random_bits(p.seed, uint(read_index(step, 0)), row)};
  const Found id = searcher.find(WeightsById{weights, n, least, kLargestWeight, last}, kept, indexBits, draw);
  if (index == 0) ids[row] = id.key;
}

#define SAMPLE(name, T) template [[host_name("sample_" name)]] [[kernel]] decltype(sample<T>) sample<T>;
SAMPLE("f32", float)
SAMPLE("f16", half)
SAMPLE("bf16", bfloat)
