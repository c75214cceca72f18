// One threadgroup: one row. Weights are integers, so sums do not depend on their order; thresholds come from bisection,
// on the bits of logits and on weights, with blocks skipped that lie below.
#include "argmax.h"
#include "cpu_kernel.h"
#include "sample.params.h"

using namespace mlxts;

namespace {

typedef uint64_t vpair __attribute__((vector_size(kLanes * 4)));

constexpr float kUnit = 0x1p30f;
constexpr uint32_t kLargestWeight = 1u << 30;

// u32 keys in the order of floats; NaN patterns lie beyond the infinities.
uint32_t key_of(float x) {
  uint32_t bits;
  memcpy(&bits, &x, 4);
  return bits & 0x80000000 ? ~bits : bits | 0x80000000;
}
float of_key(uint32_t key) {
  const uint32_t bits = key & 0x80000000 ? key & 0x7fffffff : ~key;
  float x;
  memcpy(&x, &bits, 4);
  return x;
}

// The largest key in [low, high) that reaches; low is taken to.
template <typename Reaches>
uint32_t bisect(uint32_t low, uint32_t high, Reaches reaches) {
  while (high - low > 1) {
    const uint32_t middle = low + (high - low) / 2;
    (reaches(middle) ? low : high) = middle;
  }
  return low;
}

// r in [0, 2^64): Philox4x32-10.
uint64_t random_bits(uint32_t seed, uint32_t step, uint32_t row) {
  uint32_t counter[4] = {step, row, 0, 0}, key[2] = {seed, 0};
  for (int round = 0; round < 10; ++round) {
    const uint64_t a = uint64_t(counter[0]) * 0xD2511F53, b = uint64_t(counter[2]) * 0xCD9E8D57;
    counter[0] = uint32_t(b >> 32) ^ counter[1] ^ key[0];
    counter[2] = uint32_t(a >> 32) ^ counter[3] ^ key[1];
    counter[1] = uint32_t(b);
    counter[3] = uint32_t(a);
    key[0] += 0x9E3779B9;
    key[1] += 0xBB67AE85;
  }
  return uint64_t(counter[1]) << 32 | counter[0];
}

// A sum of weights, held in 64 bits for even and odd lanes.
struct Sum {
  vpair even = {}, odd = {};
  MLXTS_INLINE void add(vu32 w) {
    const vpair both = reinterpret_cast<vpair>(w);
    even += both & 0xffffffff;
    odd += both >> 32;
  }
  MLXTS_INLINE uint64_t total() const {
    const vpair all = even + odd;
    uint64_t out = 0;
    for (int i = 0; i < kLanes / 2; ++i) out += all[i];
    return out;
  }
};

MLXTS_INLINE vu32 load_weights(const uint32_t* p) {
  vu32 v;
  memcpy(&v, p, sizeof v);
  return v;
}

template <typename T>
struct Row {
  const SampleParams& p;
  const T* logits;    // [dim]
  uint32_t* weights;  // [dim]; written for blocks with a mass only
  uint32_t blocks;
  uint64_t* mass;  // [blocks], sums of weights
  float* largest;  // [blocks], of logits
  uint32_t* top;   // [blocks], no weight is larger

  Row(const Launch& l, const SampleParams& p, uint64_t row)
      : p(p),
        logits(l.buffer<const T>(SAMPLE_LOGITS) + row * p.dim),
        weights(l.buffer<uint32_t>(SAMPLE_WEIGHTS) + row * p.dim),
        blocks((p.dim + p.blockSize - 1) / p.blockSize),
        mass(static_cast<uint64_t*>(l.scratch)),
        largest(reinterpret_cast<float*>(mass + blocks)),
        top(reinterpret_cast<uint32_t*>(largest + blocks)) {}

  uint32_t begin(uint32_t block) const { return block * p.blockSize; }
  uint32_t count(uint32_t block) const { return block + 1 < blocks ? p.blockSize : p.dim - begin(block); }

  uint64_t total() const {
    uint64_t out = 0;
    for (uint32_t b = 0; b < blocks; ++b) out += mass[b];
    return out;
  }

  // How many of n values are at least t; NaN is not.
  template <typename V>
  static uint32_t count_from(const V* x, uint32_t n, float t) {
    vi32 found = {};
    uint32_t i = 0, rest = 0;
    for (; i + kLanes <= n; i += kLanes) found -= load(x + i) >= splat(t);
    for (; i < n; ++i) rest += to_f32(x[i]) >= t;
    for (int j = 0; j < kLanes; ++j) rest += uint32_t(found[j]);
    return rest;
  }

  // The topK-th largest logit, or the least finite number if there are fewer.
  float kth_logit(float most) const {
    const uint32_t high = key_of(most) + 1;
    uint32_t low = key_of(-__FLT_MAX__);
    // So many blocks have a logit as large, so that many logits are.
    if (blocks >= p.topK)
      low = bisect(low, high, [&](uint32_t key) { return count_from(largest, blocks, of_key(key)) >= p.topK; });
    return of_key(bisect(low, high, [&](uint32_t key) { return logits_from(of_key(key)) >= p.topK; }));
  }

  uint32_t logits_from(float t) const {
    uint32_t out = 0;
    for (uint32_t b = 0; b < blocks && out < p.topK; ++b)
      if (largest[b] >= t) out += count_from(logits + begin(b), count(b), t);
    return out;
  }

  // Weights of the logits that are at least t.
  void weigh(float most, float t) {
    const auto weight = [&](vf32 v) {
      const vf32 below = exp((v - splat(most)) * splat(p.inverseTemperature));
      const vf32 w = select(v == splat(most), splat(1.0f), below) * splat(kUnit) + splat(0.5f);
      return __builtin_convertvector(select(v >= splat(t), w, splat(0.0f)), vi32);
    };
    for (uint32_t b = 0; b < blocks; ++b) {
      mass[b] = top[b] = 0;
      if (!(largest[b] >= t)) continue;
      const T* from = logits + begin(b);
      uint32_t* to = weights + begin(b);
      Sum sums;
      vi32 most_weight = {};
      const auto add = [&](vi32 w) {
        sums.add(reinterpret_cast<vu32>(w));
        const vi32 larger = w > most_weight;
        most_weight = (larger & w) | (~larger & most_weight);
      };
      for_lanes(
          count(b),
          [&](size_t i) {
            const vi32 w = weight(load(from + i));
            memcpy(to + i, &w, sizeof w);
            add(w);
          },
          [&](size_t i, int n) {
            // Missing lanes are 0, which may be drawn; make them what is not.
            vf32 v = splat(-INFINITY);
            for (int j = 0; j < n; ++j) v[j] = to_f32(from[i + j]);
            const vi32 w = weight(v);
            for (int j = 0; j < n; ++j) to[i + j] = uint32_t(w[j]);
            add(w);
          });
      mass[b] = sums.total();
      for (int j = 0; j < kLanes; ++j) top[b] = uint32_t(most_weight[j]) > top[b] ? uint32_t(most_weight[j]) : top[b];
    }
  }

  // The sum of weights that are at least t, in a block.
  uint64_t block_mass_from(uint32_t block, uint32_t t) const {
    const uint32_t* w = weights + begin(block);
    const uint32_t n = count(block);
    Sum sums;
    uint32_t i = 0;
    for (; i + kLanes <= n; i += kLanes) {
      const vu32 v = load_weights(w + i);
      sums.add(v & reinterpret_cast<vu32>(v >= t));
    }
    uint64_t out = sums.total();
    for (; i < n; ++i) out += w[i] >= t ? w[i] : 0;
    return out;
  }
  // Of all blocks, or of so many that `enough` is reached.
  uint64_t mass_from(uint32_t t, uint64_t enough) const {
    uint64_t out = 0;
    for (uint32_t b = 0; b < blocks && out < enough; ++b)
      if (mass[b] > 0 && top[b] >= t) out += block_mass_from(b, t);
    return out;
  }

  // Takes the weight of all ties but the first `keep`.
  template <typename IsTie>
  void drop_ties(uint64_t keep, IsTie is_tie) {
    for (uint32_t b = 0; b < blocks; ++b) {
      if (mass[b] == 0) continue;
      for (uint32_t i = begin(b), end = begin(b) + count(b); i < end; ++i) {
        if (!is_tie(i)) continue;
        if (keep > 0) {
          --keep;
          continue;
        }
        mass[b] -= weights[i];
        weights[i] = 0;
      }
    }
  }

  // Leaves in mass[] the largest weights whose share of the total reaches topP; returns the least of them.
  uint32_t cut_to_share() {
    const uint64_t all = total(), low = all & 0xffffffff;
    const uint64_t needed = (all >> 32) * p.topP + ((low * p.topP + 0xffffffff) >> 32);
    const uint32_t t = bisect(1, kLargestWeight + 1, [&](uint32_t w) { return mass_from(w, needed) >= needed; });
    const uint64_t above = mass_from(t + 1, needed);
    for (uint32_t b = 0; b < blocks; ++b)
      if (mass[b] > 0) mass[b] = top[b] >= t ? block_mass_from(b, t) : 0;
    const uint64_t ties = (total() - above) / t, keep = (needed - above + t - 1) / t;
    if (keep < ties) drop_ties(keep, [&](uint32_t i) { return weights[i] == t; });
    return t;
  }

  // From the weights that are at least t.
  uint32_t draw(uint64_t r, uint32_t t) const {
    const uint64_t target = uint64_t((unsigned __int128)r * total() >> 64);
    uint64_t passed = 0;
    uint32_t b = 0;
    while (b + 1 < blocks && passed + mass[b] <= target) passed += mass[b++];
    for (uint32_t i = begin(b), end = begin(b) + count(b); i < end; ++i) {
      passed += weights[i] >= t ? weights[i] : 0;
      if (passed > target) return i;
    }
    return p.dim - 1;
  }

  uint32_t sample(uint64_t r) {
    float most = -INFINITY;
    for (uint32_t b = 0; b < blocks; ++b) {
      largest[b] = mlxts::largest(logits + begin(b), count(b));
      most = largest[b] > most ? largest[b] : most;
    }
    if (most == -INFINITY) return first_largest(logits, p.dim);
    const float t = p.topK > 0 ? kth_logit(most) : -__FLT_MAX__;
    weigh(most, t);
    if (p.topK > 0) {
      const uint32_t above = logits_from(of_key(key_of(t) + 1));
      drop_ties(p.topK - above, [&](uint32_t i) { return to_f32(logits[i]) == t; });
    }
    return draw(r, p.topP > 0 ? cut_to_share() : 0);
  }
};

template <typename T>
void sample(const Launch& l) {
  const auto& p = l.args<SampleParams>();
  const uint32_t step = uint32_t(l.indices(SAMPLE_STEP).read(0));
  for (uint64_t row = l.begin; row < l.end; ++row)
    l.buffer<uint32_t>(SAMPLE_IDS)[row] = Row<T>(l, p, row).sample(random_bits(p.seed, step, uint32_t(row)));
}

}  // namespace

MLXTS_KERNEL(sample_f32, sample<float>)
MLXTS_KERNEL(sample_f16, sample<f16>)
MLXTS_KERNEL(sample_bf16, sample<bf16>)
