// One threadgroup: one row.
#include "argmax.h"

#include "argmax.params.h"
#include "cpu_kernel.h"

using namespace mlxts;

namespace {

template <typename T>
void argmax(const Launch& l) {
  const auto& p = l.args<ArgmaxParams>();
  for (uint64_t row = l.begin; row < l.end; ++row)
    l.buffer<uint32_t>(ARGMAX_IDS)[row] = first_largest(l.buffer<const T>(ARGMAX_LOGITS) + row * p.dim, p.dim);
}

}  // namespace

MLXTS_KERNEL(argmax_f32, argmax<float>)
MLXTS_KERNEL(argmax_f16, argmax<f16>)
MLXTS_KERNEL(argmax_bf16, argmax<bf16>)
