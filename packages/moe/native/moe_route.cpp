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
void softmax(const T* logits, float* scores, size_t experts) {
  float most = -INFINITY, sum = 0.0f;
  for (size_t e = 0; e < experts; ++e) most = std::max(most, to_f32(logits[e]));
  for_lanes(
      experts, [&](size_t e) { store(scores + e, exp(load(logits + e) - splat(most))); },
      [&](size_t e, int n) { store_partial(scores + e, exp(load_partial(logits + e, n) - splat(most)), n); });
  for (size_t e = 0; e < experts; ++e) sum += scores[e];
  score(scores, scores, experts, [&](vf32 power) { return power / splat(sum); });
}

// What experts are chosen by. Whether all are numbers.
bool choose_by(float* choices, const float* scores, const float* bias, size_t experts) {
  bool numbers = true;
  for (size_t e = 0; e < experts; ++e) {
    const float choice = bias ? scores[e] + bias[e] : scores[e];
    choices[e] = std::abs(choice) < kLeast ? 0.0f : choice;
    numbers = numbers && choice == choice;
  }
  return numbers;
}

// The `count` best of the `of` numbers in `order`, best first; of equal ones the lower number first.
void best_first(uint32_t* order, size_t of, size_t count, const float* scores) {
  std::partial_sort(order, order + count, order + of,
                    [&](uint32_t a, uint32_t b) { return scores[a] > scores[b] || (scores[a] == scores[b] && a < b); });
}

float group_score(const float* choices, size_t size, bool top2) {
  float first = -INFINITY, second = -INFINITY;
  for (size_t e = 0; e < size; ++e) {
    second = std::max(second, std::min(first, choices[e]));
    first = std::max(first, choices[e]);
  }
  const float both = first + second;  // of ∞ and −∞ NaN, which has no place in an order
  return top2 && size > 1 && both == both ? both : first;
}

// Fills `order` with the experts of the best groups. How many there are.
size_t experts_of_best_groups(uint32_t* order, const float* choices, float* groupScores, const MoeRouteParams& p) {
  const size_t size = p.experts / p.groups;
  for (uint32_t g = 0; g < p.groups; ++g) {
    groupScores[g] = group_score(choices + g * size, size, p.top2);
    order[g] = g;
  }
  best_first(order, p.groups, p.topGroups, groupScores);
  std::sort(order, order + p.topGroups);
  // From the last group on: the experts of group i go behind those of the groups before it.
  for (size_t i = p.topGroups; i-- > 0;) {
    const size_t group = order[i];
    for (size_t e = size; e-- > 0;) order[i * size + e] = uint32_t(group * size + e);
  }
  return p.topGroups * size;
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
  size_t candidates = p.experts;
  if (p.groups > 1)
    candidates =
        experts_of_best_groups(scratch.order, choices, l.buffer<float>(MOE_ROUTE_GROUP_SCORES) + token * p.groups, p);
  else
    for (uint32_t e = 0; e < p.experts; ++e) scratch.order[e] = e;
  best_first(scratch.order, candidates, p.topK, choices);
  float sum = 0.0f;
  for (size_t j = 0; j < p.topK; ++j) sum += scratch.scores[scratch.order[j]];
  const float divisor = p.normalize ? sum + 1e-20f : 1.0f;
  for (size_t j = 0; j < p.topK; ++j) {
    indices[j] = scratch.order[j];
    weights[j] = scratch.scores[scratch.order[j]] / divisor * p.scale;
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
