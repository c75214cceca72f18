// One threadgroup: one token.
#include <algorithm>
#include <limits>

#include "cpu_kernel.h"
#include "moe_route.params.h"
#include "simd.h"

using namespace mlxts;

namespace {

constexpr float kLeast = std::numeric_limits<float>::min();

// Numbers that a GPU may flush count as 0 on every device.
MLXTS_INLINE vf32 flushed(vf32 x) { return select((x < splat(kLeast)) & (x > splat(-kLeast)), vf32{}, x); }

// scores[e] = of(logit e).
template <typename T, typename Of>
void score(const T* logits, float* scores, size_t experts, Of of) {
  for_lanes(
      experts, [&](size_t e) { store(scores + e, flushed(of(load(logits + e)))); },
      [&](size_t e, int count) { store_partial(scores + e, flushed(of(load_partial(logits + e, count))), count); });
}

template <typename T>
float largest(const T* logits, size_t experts) {
  vf32 most = splat(-INFINITY);
  const vf32 least = most;
  for_lanes(
      experts, [&](size_t e) { most = max(load(logits + e), most); },
      [&](size_t e, int n) {
        most = max(select(lane_index() < splat_i32(n), load_partial(logits + e, n), least), most);
      });
  return reduce_max(most);
}

template <typename T>
void softmax(const T* logits, float* scores, size_t experts) {
  const vf32 most = splat(largest(logits, experts));
  vf32 sums = {};
  for_lanes(
      experts,
      [&](size_t e) {
        const vf32 power = exp(load(logits + e) - most);
        store(scores + e, power);
        sums += power;
      },
      [&](size_t e, int n) {
        const vf32 power = exp(load_partial(logits + e, n) - most);
        store_partial(scores + e, power, n);
        sums += select(lane_index() < splat_i32(n), power, vf32{});
      });
  const vf32 sum = splat(reduce_add(sums));
  score(scores, scores, experts, [&](vf32 power) { return power / sum; });
}

// What experts are chosen by. Whether all are numbers.
bool choose_by(float* choices, const float* scores, const float* bias, size_t experts) {
  vi32 wrong = {};
  for_lanes(
      experts,
      [&](size_t e) {
        const vf32 choice = bias ? flushed(load(scores + e) + load(bias + e)) : load(scores + e);
        store(choices + e, choice);
        wrong |= choice != choice;
      },
      [&](size_t e, int n) {
        const vf32 score = load_partial(scores + e, n);
        const vf32 choice = bias ? flushed(score + load_partial(bias + e, n)) : score;
        store_partial(choices + e, choice, n);
        wrong |= choice != choice;
      });
  for (int i = 0; i < kLanes; ++i)
    if (wrong[i]) return false;
  return true;
}

// The best of the numbers that are offered in ascending order, best first; of equal ones the lower number first.
struct BestFirst {
  uint32_t* order;
  size_t most, count = 0;

  void offer(const float* scores, uint32_t number) {
    if (count == most && !(scores[number] > scores[order[count - 1]])) return;
    size_t at = count < most ? count++ : count - 1;
    for (; at > 0 && scores[order[at - 1]] < scores[number]; --at) order[at] = order[at - 1];
    order[at] = number;
  }
};

float group_score(const float* choices, size_t size, bool top2) {
  float first = -INFINITY, second = -INFINITY;
  for (size_t e = 0; e < size; ++e) {
    second = std::max(second, std::min(first, choices[e]));
    first = std::max(first, choices[e]);
  }
  const float both = first + second;  // of ∞ and −∞ NaN, which has no place in an order
  return top2 && size > 1 && both == both ? both : first;
}

// The best experts of the best groups.
void choose(uint32_t* chosen, const float* choices, float* groupScores, uint32_t* order, const MoeRouteParams& p) {
  const uint32_t size = p.experts / p.groups;
  BestFirst groups = {order, p.topGroups};
  for (uint32_t g = 0; g < p.groups; ++g) {
    groupScores[g] = group_score(choices + g * size, size, p.top2);
    groups.offer(groupScores, g);
  }
  std::sort(order, order + groups.count);
  BestFirst experts = {chosen, p.topK};
  for (size_t i = 0; i < groups.count; ++i)
    for (uint32_t e = order[i] * size; e < (order[i] + 1) * size; ++e) experts.offer(choices, e);
}

template <typename T>
void route(const Launch& l, const MoeRouteParams& p, size_t token) {
  const auto scratch = scratch_of(l, p);
  const T* logits = l.buffer<const T>(MOE_ROUTE_LOGITS) + token * p.experts;
  float* choices = l.buffer<float>(MOE_ROUTE_CHOICES) + token * p.experts;
  uint32_t* indices = l.buffer<uint32_t>(MOE_ROUTE_INDICES) + token * p.topK;
  float* weights = l.buffer<float>(MOE_ROUTE_WEIGHTS) + token * p.topK;
  if (p.softmax)
    softmax(logits, scratch.scores, p.experts);
  else
    score(logits, scratch.scores, p.experts, [](vf32 logit) { return sigmoid(logit); });
  if (!choose_by(choices, scratch.scores, l.buffer<const float>(MOE_ROUTE_BIAS), p.experts)) {
    for (uint32_t j = 0; j < p.topK; ++j) indices[j] = j, weights[j] = NAN;
    return;
  }
  // `indices` is memory that others may write.
  uint32_t* chosen = scratch.chosen;
  choose(chosen, choices, l.buffer<float>(MOE_ROUTE_GROUP_SCORES) + token * p.groups, scratch.bestGroups, p);
  float sum = 0.0f;
  for (uint32_t j = 0; j < p.topK; ++j) sum += scratch.scores[chosen[j]];
  const float divisor = p.normalize ? sum + 1e-20f : 1.0f;
  for (uint32_t j = 0; j < p.topK; ++j) {
    indices[j] = chosen[j];
    weights[j] = scratch.scores[chosen[j]] / divisor * p.scale;
  }
}

template <typename T>
void moe_route(const Launch& l) {
  const auto& p = l.args<MoeRouteParams>();
  for (uint64_t token = l.begin; token < l.end; ++token) route<T>(l, p, token);
}

}  // namespace

MLXTS_KERNEL(moe_route_f32, moe_route<float>)
MLXTS_KERNEL(moe_route_f16, moe_route<f16>)
MLXTS_KERNEL(moe_route_bf16, moe_route<bf16>)
