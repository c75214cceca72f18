// One threadgroup: v and beta of some tokens, copied, or zeros for those that the mask skips.
#include "cpu_kernel.h"
#include "mask_values.params.h"
#include "simd.h"

using namespace mlxts;

namespace {

template <typename T>
void copy_or_clear(T* to, const T* from, size_t n, bool kept) {
  if (kept)
    memcpy(to, from, n * sizeof(T));
  else
    memset(to, 0, n * sizeof(T));
}

template <typename T>
void mask_values(const Launch& l) {
  const auto& p = l.args<MaskValuesParams>();
  const uint8_t* mask = l.buffer<const uint8_t>(MASK_VALUES_MASK);
  const size_t heads = p.heads, values = heads * p.valueDim;
  const size_t first = l.begin * MASK_VALUES_TOKENS_PER_THREADGROUP, end = l.end * MASK_VALUES_TOKENS_PER_THREADGROUP;
  for (size_t token = first; token < end && token < p.tokens; ++token) {
    const bool kept = mask[token] != 0;
    copy_or_clear(l.buffer<T>(MASK_VALUES_V_KEPT) + token * values, l.buffer<const T>(MASK_VALUES_V) + token * values,
                  values, kept);
    copy_or_clear(l.buffer<float>(MASK_VALUES_BETA_KEPT) + token * heads,
                  l.buffer<const float>(MASK_VALUES_BETA) + token * heads, heads, kept);
  }
}

}  // namespace

MLXTS_KERNEL(mask_values_f32, mask_values<float>)
MLXTS_KERNEL(mask_values_f16, mask_values<f16>)
MLXTS_KERNEL(mask_values_bf16, mask_values<bf16>)
