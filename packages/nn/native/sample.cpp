// One threadgroup: one row. Weights are integers, so that their sums do not depend on the order. Thresholds are found by
// bisection, of logits over their bits and of weights over their values; blocks with nothing above one are skipped.
#include "argmax.h"
#include "sample.params.h"
#include "sampling.h"

using namespace mlxts;

namespace {

typedef uint64_t vu64 __attribute__((vector_size(kLanes * 4)));  // two neighboring lanes of a vu32 to one

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

// The largest key in [low, high) for which reaches(key) holds. It holds for low, and with a key for all smaller ones.
template <typename Reaches>
uint32_t bisect(uint32_t low, uint32_t high, Reaches reaches) {
  while (high - low > 1) {
    const uint32_t middle = low + (high - low) / 2;
    (reaches(middle) ? low : high) = middle;
  }
  return low;
}

// A sum of weights in 64 bits: those of even lanes and those of odd lanes.
struct Sum {
  vu64 even = {}, odd = {};
  MLXTS_INLINE void add(vu32 weights) {
    const vu64 both = reinterpret_cast<vu64>(weights);
    even += both & 0xffffffff;
    odd += both >> 32;
  }
  MLXTS_INLINE uint64_t total() const {
    const vu64 all = even + odd;
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

// How many of n values are at least `threshold`; NaN is not.
template <typename V>
uint32_t count_from(const V* x, uint32_t n, float threshold) {
  vf32 found = {};  // a float holds every count up to 2^24
  uint32_t i = 0, rest = 0;
  for (; i + kLanes <= n; i += kLanes) found += select(load(x + i) >= splat(threshold), splat(1.0f), splat(0.0f));
  for (; i < n; ++i) rest += to_f32(x[i]) >= threshold;
  return rest + uint32_t(reduce_add(found));
}

template <typename T>
struct Row {
  const SampleParams& p;
  const T* logits;    // [dim]
  uint32_t* weights;  // [dim]; written only for blocks with a mass above 0
  uint32_t blocks;
  uint64_t* mass;      // [blocks], sums of weights
  float* largest;      // [blocks], logits
  uint32_t* heaviest;  // [blocks], weights

  Row(const Launch& l, const SampleParams& p, uint64_t row)
      : p(p),
        logits(l.buffer<const T>(SAMPLE_LOGITS) + row * p.dim),
        weights(l.buffer<uint32_t>(SAMPLE_WEIGHTS) + row * p.dim),
        blocks((p.dim + SAMPLE_BLOCK - 1) / SAMPLE_BLOCK) {
    const auto scratch = scratch_of(l, p);
    mass = reinterpret_cast<uint64_t*>(scratch.mass);
    largest = scratch.largest;
    heaviest = scratch.heaviest;
  }

  uint32_t begin(uint32_t block) const { return block * SAMPLE_BLOCK; }
  uint32_t count(uint32_t block) const { return block + 1 < blocks ? SAMPLE_BLOCK : p.dim - begin(block); }

  uint64_t total() const {
    uint64_t out = 0;
    for (uint32_t b = 0; b < blocks; ++b) out += mass[b];
    return out;
  }

  // Fills largest[] and returns the largest logit of all.
  float find_largest() {
    float maximum = -INFINITY;
    for (uint32_t b = 0; b < blocks; ++b) {
      largest[b] = mlxts::largest(logits + begin(b), count(b));
      maximum = largest[b] > maximum ? largest[b] : maximum;
    }
    return maximum;
  }

  // The topK-th largest logit, or the least finite number if there are fewer.
  float kth_logit(float maximum) const {
    const uint32_t high = key_of(maximum) + 1;
    uint32_t low = key_of(-__FLT_MAX__);
    // A number that the largest logits of topK blocks reach is reached by topK logits: a lower bound.
    if (blocks >= p.topK)
      low = bisect(low, high, [&](uint32_t key) { return count_from(largest, blocks, of_key(key)) >= p.topK; });
    return of_key(bisect(low, high, [&](uint32_t key) { return logits_from(of_key(key), p.topK) >= p.topK; }));
  }

  // How many logits are at least `threshold`; the count ends when it reaches `enough`.
  uint32_t logits_from(float threshold, uint32_t enough) const {
    uint32_t out = 0;
    for (uint32_t b = 0; b < blocks && out < enough; ++b)
      if (largest[b] >= threshold) out += count_from(logits + begin(b), count(b), threshold);
    return out;
  }

  // Weights of the logits that are at least `threshold`, 0 for the others of their blocks; mass[] and heaviest[].
  void weigh(float maximum, float threshold) {
    for (uint32_t b = 0; b < blocks; ++b) {
      mass[b] = heaviest[b] = 0;
      if (largest[b] >= threshold) weigh_block(b, maximum, threshold);
    }
  }

  void weigh_block(uint32_t block, float maximum, float threshold) {
    const auto weight = [&](vf32 v) {
      const vf32 below = exp((v - splat(maximum)) * splat(p.inverseTemperature));
      const vf32 w = select(v == splat(maximum), splat(1.0f), below) * splat(SAMPLE_LARGEST_WEIGHT) + splat(0.5f);
      return __builtin_convertvector(select(v >= splat(threshold), w, splat(0.0f)), vi32);
    };
    const T* from = logits + begin(block);
    uint32_t* to = weights + begin(block);
    Sum sum;
    vi32 most = {};
    const auto add = [&](vi32 w) {
      sum.add(reinterpret_cast<vu32>(w));
      const vi32 larger = w > most;
      most = (larger & w) | (~larger & most);
    };
    for_lanes(
        count(block),
        [&](size_t i) {
          const vi32 w = weight(load(from + i));
          memcpy(to + i, &w, sizeof w);
          add(w);
        },
        [&](size_t i, int n) {
          // load_partial would give 0 for missing lanes, a logit that may be drawn; -infinity never is.
          vf32 v = splat(-INFINITY);
          for (int j = 0; j < n; ++j) v[j] = to_f32(from[i + j]);
          const vi32 w = weight(v);
          for (int j = 0; j < n; ++j) to[i + j] = uint32_t(w[j]);
          add(w);
        });
    mass[block] = sum.total();
    for (int j = 0; j < kLanes; ++j)
      heaviest[block] = uint32_t(most[j]) > heaviest[block] ? uint32_t(most[j]) : heaviest[block];
  }

  // The sum of a block's weights that are at least `threshold`.
  uint64_t block_mass_from(uint32_t block, uint32_t threshold) const {
    const uint32_t* w = weights + begin(block);
    const uint32_t n = count(block);
    Sum sum;
    uint32_t i = 0;
    for (; i + kLanes <= n; i += kLanes) {
      const vu32 v = load_weights(w + i);
      sum.add(v & reinterpret_cast<vu32>(v >= threshold));
    }
    uint64_t out = sum.total();
    for (; i < n; ++i) out += w[i] >= threshold ? w[i] : 0;
    return out;
  }
  // The same of all blocks; the sum ends when it reaches `enough`.
  uint64_t mass_from(uint32_t threshold, uint64_t enough) const {
    uint64_t out = 0;
    for (uint32_t b = 0; b < blocks && out < enough; ++b)
      if (mass[b] > 0 && heaviest[b] >= threshold) out += block_mass_from(b, threshold);
    return out;
  }

  // Sets the weights of all ties but the first `keep` to 0.
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

  // Leaves in mass[] only the largest weights, whose share of the total reaches topP; returns the least of them.
  uint32_t keep_top_p() {
    const uint64_t needed = sum_with_share(total(), p.topP);
    const uint32_t least =
        bisect(1, SAMPLE_LARGEST_WEIGHT + 1, [&](uint32_t w) { return mass_from(w, needed) >= needed; });
    const uint64_t above = mass_from(least + 1, needed);
    for (uint32_t b = 0; b < blocks; ++b)
      if (mass[b] > 0) mass[b] = heaviest[b] >= least ? block_mass_from(b, least) : 0;
    const uint64_t ties = (total() - above) / least, keep = (needed - above + least - 1) / least;
    if (keep < ties) drop_ties(keep, [&](uint32_t i) { return weights[i] == least; });
    return least;
  }

  // Draws from the weights that are at least `least`.
  uint32_t draw(uint64_t r, uint32_t least) const {
    const uint64_t target = drawn_sum(r, total());
    uint64_t passed = 0;
    uint32_t b = 0;
    while (b + 1 < blocks && passed + mass[b] <= target) passed += mass[b++];
    for (uint32_t i = begin(b), end = begin(b) + count(b); i < end; ++i) {
      passed += weights[i] >= least ? weights[i] : 0;
      if (passed > target) return i;
    }
    return p.dim - 1;
  }

  uint32_t sample(uint64_t r) {
    const float maximum = find_largest();
    if (maximum == -INFINITY) return first_largest(logits, p.dim);
    const float threshold = p.topK > 0 ? kth_logit(maximum) : -__FLT_MAX__;
    weigh(maximum, threshold);
    if (p.topK > 0 && logits_from(threshold, p.topK + 1) > p.topK) {
      const uint32_t above = logits_from(of_key(key_of(threshold) + 1), p.topK);
      drop_ties(p.topK - above, [&](uint32_t i) { return to_f32(logits[i]) == threshold; });
    }
    return draw(r, p.topP > 0 ? keep_top_p() : 0);
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
