#include "metal_kernel.h"
#include "moe_route.params.h"

using namespace metal;
using namespace mlxts;

// The threads of a threadgroup, which has one token.
struct Team {
  uint index, threads, lane, simdgroup, simdgroups;
};

// Numbers that a GPU may flush count as 0 on every device.
METAL_FUNC float flushed(float x) { return fabs(x) < FLT_MIN ? 0.0f : x; }

METAL_FUNC bool is_nan(float x) { return (as_type<uint>(x) & 0x7fffffff) > 0x7f800000; }

// Keys in the order of the numbers, from 1 on.
METAL_FUNC uint key_of(float x) {
  const uint bits = as_type<uint>(x);
  return bits >> 31 ? ~bits : bits | 0x80000000;
}

METAL_FUNC float threadgroup_max(float value, threadgroup float* partial, Team t) {
  value = simd_max(value);
  if (t.lane == 0) partial[t.simdgroup] = value;
  threadgroup_barrier(mem_flags::mem_threadgroup);
  value = simd_max(partial[t.lane < t.simdgroups ? t.lane : 0]);
  threadgroup_barrier(mem_flags::mem_threadgroup);  // `partial` may be used again
  return value;
}

// The score of an expert: `most` and `sum` are of the softmax.
struct Scores {
  bool softmax;
  float most, sum;

  float of(float logit) const {
    if (softmax) return flushed(precise::exp(logit - most) / sum);
    return flushed(times_sigmoid(1.0f, 1.0f, logit));
  }
};

template <typename T>
METAL_FUNC Scores scores_of(device const T* logits, constant MoeRouteParams& p, threadgroup float* partial, Team t) {
  if (!p.softmax) return {false, 0.0f, 1.0f};
  float most = -INFINITY, sum = 0.0f;
  for (uint e = t.index; e < p.experts; e += t.threads) most = max(most, float(logits[e]));
  most = threadgroup_max(most, partial, t);
  for (uint e = t.index; e < p.experts; e += t.threads) sum += precise::exp(float(logits[e]) - most);
  sum = threadgroup_sum(sum, partial, t.lane, t.simdgroup, t.simdgroups);
  threadgroup_barrier(mem_flags::mem_threadgroup);  // `partial` may be used again
  return {true, most, sum};
}

// Its two best experts together, or its best one.
METAL_FUNC float group_score(device const float* choices, uint size, bool top2) {
  float first = -INFINITY, second = -INFINITY;
  for (uint e = 0; e < size; ++e) {
    second = max(second, min(first, choices[e]));
    first = max(first, choices[e]);
  }
  const float both = first + second;  // of ∞ and −∞ NaN, which has no place in an order
  return top2 && size > 1 && !is_nan(both) ? both : first;
}

// Experts of other than the best groups get NaN, which is never chosen.
METAL_FUNC void drop_groups(device float* choices, device float* groupScores, constant MoeRouteParams& p, Team t) {
  const uint size = p.experts / p.groups;
  threadgroup_barrier(mem_flags::mem_device);
  for (uint g = t.index; g < p.groups; g += t.threads) groupScores[g] = group_score(choices + g * size, size, p.top2);
  threadgroup_barrier(mem_flags::mem_device);
  for (uint g = t.index; g < p.groups; g += t.threads) {
    const uint own = key_of(groupScores[g]);
    uint better = 0;
    for (uint other = 0; other < p.groups; ++other) {
      const uint key = key_of(groupScores[other]);
      better += key > own || (key == own && other < g) ? 1 : 0;
    }
    for (uint e = 0; e < size && better >= p.topGroups; ++e) choices[g * size + e] = NAN;
  }
  threadgroup_barrier(mem_flags::mem_device);
}

struct Best {
  uint key, at;
};

// The best expert behind `last` in the order of choice: by their keys, of equal ones the lower index first.
METAL_FUNC Best next_best(device const float* choices, uint experts, Best last, threadgroup uint* best, Team t) {
  Best own = {0, 0};
  for (uint e = t.index; e < experts; e += t.threads) {
    const uint key = is_nan(choices[e]) ? 0 : key_of(choices[e]);
    const bool behind = key < last.key || (key == last.key && e > last.at);
    if (behind && key > own.key) own = {key, e};
  }
  uint key = simd_max(own.key);
  uint at = simd_min(own.key == key ? own.at : ~0u);
  if (t.simdgroups == 1) return {key, at};
  if (t.lane == 0) {
    best[2 * t.simdgroup] = key;
    best[2 * t.simdgroup + 1] = at;
  }
  threadgroup_barrier(mem_flags::mem_threadgroup);
  const uint from = t.lane < t.simdgroups ? 2 * t.lane : 0;
  own = {best[from], best[from + 1]};
  key = simd_max(own.key);
  return {key, simd_min(own.key == key ? own.at : ~0u)};
}

// One threadgroup: one token.
template <typename T>
kernel void moe_route(
    device const T* logits [[buffer(MOE_ROUTE_LOGITS)]], device const float* bias [[buffer(MOE_ROUTE_BIAS)]],
    device float* choices [[buffer(MOE_ROUTE_CHOICES)]], device float* groupScores [[buffer(MOE_ROUTE_GROUP_SCORES)]],
    device uint* indices [[buffer(MOE_ROUTE_INDICES)]], device float* weights [[buffer(MOE_ROUTE_WEIGHTS)]],
    constant MoeRouteParams& p [[buffer(MOE_ROUTE_PARAMS)]], threadgroup uchar* memory [[threadgroup(0)]],
    uint token [[threadgroup_position_in_grid]], uint index [[thread_position_in_threadgroup]],
    uint threads [[threads_per_threadgroup]], uint lane [[thread_index_in_simdgroup]],
    uint simdgroup [[simdgroup_index_in_threadgroup]], uint simdgroups [[simdgroups_per_threadgroup]]) {
  const MoeRouteScratch scratch = scratch_of(memory, p);
  const Team t = {index, threads, lane, simdgroup, simdgroups};
  logits += ulong(token) * p.experts;
  choices += ulong(token) * p.experts;
  indices += ulong(token) * p.topK;
  weights += ulong(token) * p.topK;
  const Scores scores = scores_of(logits, p, scratch.partial, t);
  float wrong = 0.0f;
  for (uint e = index; e < p.experts; e += threads) {
    const float score = scores.of(float(logits[e]));
    const float choice = p.present & MOE_ROUTE_HAS_BIAS ? flushed(score + bias[e]) : score;
    choices[e] = choice;
    if (is_nan(choice)) wrong = 1.0f;
  }
  if (threadgroup_max(wrong, scratch.partial, t) > 0.0f) {
    for (uint j = index; j < p.topK; j += threads) {
      indices[j] = j;
      weights[j] = NAN;
    }
    return;
  }
  if (p.groups > 1) drop_groups(choices, groupScores + ulong(token) * p.groups, p, t);

  Best last = {~0u, 0};
  float sum = 0.0f;
  for (uint j = 0; j < p.topK; ++j) {
    last = next_best(choices, p.experts, last, scratch.best + j % 2 * 2 * simdgroups, t);
    const float score = scores.of(float(logits[last.at]));
    sum += score;
    if (index > 0) continue;
    indices[j] = last.at;
    weights[j] = score;
  }
  const float divisor = p.normalize ? sum + 1e-20f : 1.0f;
  for (uint j = 0; j < p.topK && index == 0; ++j) weights[j] = weights[j] / divisor * p.scale;
}

#define MOE_ROUTE(name, T) template [[host_name("moe_route_" name)]] [[kernel]] decltype(moe_route<T>) moe_route<T>;
MOE_ROUTE("f32", float)
MOE_ROUTE("f16", half)
MOE_ROUTE("bf16", bfloat)
