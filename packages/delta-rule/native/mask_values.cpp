// One threadgroup: v and beta of a block of tokens, copied or made zeros.
#include "cpu_kernel.h"
#include "mask_values.params.h"
#include "simd.h"

using namespace mlxts;

namespace {

template <typename T>
void mask_values(const Launch& l) {
  const auto& p = l.args<MaskValuesParams>();
  const uint8_t* mask = l.buffer<const uint8_t>(MASK_VALUES_MASK);
  const auto keep = [](void* to, const void* from, size_t bytes, bool kept) {
    if (kept)
      memcpy(to, from, bytes);
    else
      memset(to, 0, bytes);
  };
  const size_t values = size_t(p.heads) * p.valueDim;
  const uint64_t first = l.begin * p.tokensPerThreadgroup;
  const uint64_t last = l.end * p.tokensPerThreadgroup < p.tokens ? l.end * p.tokensPerThreadgroup : p.tokens;
  for (uint64_t token = first; token < last; ++token) {
    const bool kept = mask[token] != 0;
    keep(l.buffer<T>(MASK_VALUES_V_KEPT) + token * values, l.buffer<const T>(MASK_VALUES_V) + token * values,
         values * sizeof(T), kept);
    keep(l.buffer<float>(MASK_VALUES_BETA_KEPT) + token * p.heads,
         l.buffer<const float>(MASK_VALUES_BETA) + token * p.heads, p.heads * sizeof(float), kept);
  }
}

}  // namespace

MLXTS_KERNEL(mask_values_f32, mask_values<float>)
MLXTS_KERNEL(mask_values_f16, mask_values<f16>)
MLXTS_KERNEL(mask_values_bf16, mask_values<bf16>)
