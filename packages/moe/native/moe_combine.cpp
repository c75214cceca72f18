// One threadgroup: one token.
#include "moe_combine.params.h"
#include "simd.h"
#include "slot_rows.h"

using namespace mlxts;

namespace {

// The rows of one token; null where there are none.
template <typename T>
struct Rows {
  const T *shared, *residual;
  vf32 gate;  // of the shared row
  T* out;
};

// Columns from `at` on: `sum` is what the experts gave, `load` and `store` take a row's address.
template <typename T, typename Load, typename Store>
MLXTS_INLINE void finish(vf32 sum, const Rows<T>& rows, size_t at, Load load, Store store) {
  if (rows.shared) sum = fma(load(rows.shared + at), rows.gate, sum);
  if (rows.residual) sum = sum + load(rows.residual + at);
  store(rows.out + at, sum);
}

template <typename T>
int32_t moe_combine(const Launch& l) {
  const auto& p = l.args<MoeCombineParams>();
  const T* y = l.buffer<const T>(MOE_COMBINE_Y);
  const T* shared = l.buffer<const T>(MOE_COMBINE_SHARED);
  const T* gates = l.buffer<const T>(MOE_COMBINE_SHARED_GATE);
  const T* residual = l.buffer<const T>(MOE_COMBINE_RESIDUAL);
  const SlotRows slots = {l.indices(MOE_COMBINE_ORDER), l.indices(MOE_COMBINE_PLACES), p.tokens * p.topK};
  for (uint64_t token = l.begin; token < l.end; ++token) {
    const uint64_t row = token * p.dim;
    const float* weights = l.buffer<const float>(MOE_COMBINE_WEIGHTS) + token * p.topK;
    const vf32 gate = gates ? sigmoid(splat(to_f32(gates[token]))) : splat(1.0f);
    const Rows<T> rows = {shared ? shared + row : nullptr, residual ? residual + row : nullptr, gate,
                          l.buffer<T>(MOE_COMBINE_OUT) + row};
    for (uint32_t j = 0; j < p.topK; ++j)
      if (!slots.right(token * p.topK + j)) return l.fail(MOE_COMBINE_FAULT_MISSING, uint32_t(token * p.topK + j));
    const auto sum = [&](size_t at, auto load) {
      vf32 total = {};
      for (uint32_t j = 0; j < p.topK; ++j)
        total = fma(load(y + uint64_t(slots.row(token * p.topK + j)) * p.dim + at), splat(weights[j]), total);
      return total;
    };
    const auto whole = [](const T* from) { return load(from); };
    for_lanes(
        p.dim, [&](size_t at) { finish(sum(at, whole), rows, at, whole, [](T* to, vf32 v) { store(to, v); }); },
        [&](size_t at, int n) {
          const auto part = [n](const T* from) { return load_partial(from, n); };
          finish(sum(at, part), rows, at, part, [n](T* to, vf32 v) { store_partial(to, v, n); });
        });
  }
  return 0;
}

}  // namespace

MLXTS_KERNEL(moe_combine_f32, moe_combine<float>)
MLXTS_KERNEL(moe_combine_f16, moe_combine<f16>)
MLXTS_KERNEL(moe_combine_bf16, moe_combine<bf16>)
